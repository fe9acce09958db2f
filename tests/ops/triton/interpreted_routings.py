"""Run by test_triton.py in a process of its own, with TRITON_INTERPRET=1: every routing against its reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsConv2d, CapsLinear
from torchcaps.ops._triton.layer import dense_layer
from torchcaps.ops.conv import Window
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

from .interpreting import few_programs  # noqa: F401


class Sizes(NamedTuple):
    """Number of children that a parent sees, parents, and pose sizes."""

    children: int
    parents: int
    size: int
    out: int


def betas(sizes: Sizes) -> dict[str, Tensor]:
    return {"beta_u": torch.randn(sizes.parents), "beta_a": torch.randn(sizes.parents)}


# Tensors of each routing, for one sample per position.
TENSORS: dict[str, Callable[[Sizes], dict[str, Tensor]]] = {
    "kmeans": lambda sizes: {},
    "attention": lambda sizes: {"gain": torch.randn(sizes.out), "offset": torch.randn(sizes.out)},
    "self_attention": lambda sizes: {"prior": torch.randn(sizes.children, sizes.parents)},
    "self_routing": lambda sizes: {
        "route_weight": torch.randn(sizes.children, sizes.parents, sizes.size),
        "route_bias": torch.randn(sizes.children, sizes.parents),
    },
    "em": lambda sizes: {**betas(sizes), "background": torch.tensor([-2.0])},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "kmeans": {"iters": 2},
    "attention": {"iters": 2},
    "em": {"iters": 2, "inverse_temp": "linear", "sharpness": 0.5},
}
# The gradients of betas have few entries, so that the reference may be right by chance.
FACTOR = {"em": 16.0}


def run(
    name: str,
    backend: str,
    names: list[str],
    window: Window | None,
    mask: Tensor | None,
    options: dict[str, Any],
    *tensors: Tensor,
) -> Tensor:
    poses, activations, weight, *others = tensors
    given = {**dict(zip(names, others, strict=True)), **options}
    children = Capsules(poses, activations)
    if window is None:
        out = ops.route(children, weight, name, backend=backend, mask=mask, **given)
    else:
        out = ops.route_conv(children, weight, window, name, backend=backend, mask=mask, **given)
    # Activations that have no role get a gradient of zero.
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1) + 0 * activations.nan_to_num().sum()


def check(
    name: str,
    poses: Tensor,
    weight: Tensor,
    window: Window | None = None,
    tensors: dict[str, Tensor] | None = None,
    **others: Any,
) -> None:
    mask = others.pop("mask", None)
    options = {**OPTIONS.get(name, {}), **others}
    size = weight.shape[-1] * (weight.shape[-2] if window is not None and window.pose == "matrix" else 1)
    count = poses.shape[1] if window is None else window.places * poses.shape[-2]
    given = tensors or TENSORS[name](Sizes(count, weight.shape[-3], poses.shape[-1], size))
    kernel = partial(run, name, "triton", list(given), window, mask, options)
    reference = partial(run, name, "reference", list(given), window, mask, options)
    inputs = [poses, torch.rand(poses.shape[:-1]), weight, *given.values()]
    assert_matches_reference(kernel, reference, inputs, factor=FACTOR.get(name, 4.0))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


every_routing = pytest.mark.parametrize("name", TENSORS)
# Both attentions launch the kernels of k-means, with other steps between passes.
few_routings = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name.endswith("attention"))) for name in TENSORS]
)


@every_routing
def test_dense_values_and_gradients(name: str) -> None:
    check(name, torch.randn(3, 3, 2), torch.randn(3, 3, 2, 5))


@few_routings
def test_one_child_and_one_parent(name: str) -> None:
    check(name, torch.randn(1, 1, 1), torch.randn(1, 1, 1, 1))


def test_shared_weight() -> None:
    check("attention", torch.randn(2, 3, 2), torch.randn(3, 2, 3), None, {"parents": torch.randn(2, 3, 3)})
    given = {**betas(Sizes(3, 3, 2, 3)), "load": torch.tensor([2.0, 3.0])}
    check("em", torch.randn(2, 3, 2), torch.randn(3, 2, 3), None, given, momentum=0.2)


@pytest.mark.parametrize("name", ["self_routing", "em"])
def test_masked_children_have_no_effect(name: str) -> None:
    poses = torch.randn(2, 3, 2)
    poses[0, 1] = torch.nan
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[0, 1] = False
    check(name, poses, torch.randn(3, 2, 2, 3), mask=mask)


def grid(competition: Any, pose: Any, *, offsets: bool = True, stride: int = 1) -> Window:
    return Window((3, 2), (2, 2), stride, competition, pose, torch.randn(4, 2) if offsets else None)


def test_em_with_positions_that_compete_for_each_type() -> None:
    poses, weight = torch.randn(1, 3, 2, 1, 4), torch.randn(4, 2, 2, 2)
    check("em", poses, weight, grid("positions", "matrix"), start="types", momentum=0.1)


@few_routings
def test_convolution_of_matrices_with_competing_positions(name: str) -> None:
    check(name, torch.randn(1, 3, 2, 1, 4), torch.randn(4, 2, 2, 2), grid("global", "matrix"))


def test_convolution_of_vectors_with_local_competition() -> None:
    weight = torch.randn(1, 2, 3, 2)
    check("kmeans", torch.randn(1, 3, 2, 1, 3), weight, grid("local", "vector"))
    dynamic = {"leaky": True, "iters": 2, "squash": "half"}
    check(
        "dynamic", torch.randn(1, 3, 2, 1, 3), weight, grid("global", "vector"), {"bias": torch.randn(2, 2)}, **dynamic
    )


def test_volumes() -> None:
    window = Window((2, 1, 3), (2, 1, 2), 1, "global", "vector", torch.randn(4, 3))
    check("em", torch.randn(1, 2, 1, 3, 1, 2), torch.randn(4, 2, 2, 3), window)


@pytest.mark.slow
@every_routing
@pytest.mark.parametrize("competition", ["local", "global"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(name: str, competition: str, shared: bool, stride: int) -> None:
    window = Window((5, 4), (3, 2), stride, competition, "matrix", torch.randn(6, 2))  # pyright: ignore[reportArgumentType]
    check(name, torch.randn(2, 5, 4, 2, 9), torch.randn(2 if shared else 12, 3, 3, 3), window)
    window = Window((5, 4), (3, 2), stride, competition, "vector")  # pyright: ignore[reportArgumentType]
    check(name, torch.randn(2, 5, 4, 2, 3), torch.randn(2 if shared else 12, 3, 3, 5), window)


@pytest.mark.slow
@every_routing
@pytest.mark.parametrize("shape", [(20, 3, 10, 8, 16), (2, 40, 2, 5, 2), (1, 4, 1, 2, 8), (2, 1, 7, 4, 3)], ids=str)
def test_dense_shapes(name: str, shape: tuple[int, ...]) -> None:
    batch, children, parents, size, out = shape
    iters: dict[str, Any] = {"iters": 3} if name in OPTIONS else {}
    check(name, torch.randn(batch, children, size), torch.randn(children, parents, size, out), **iters)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["parents", "types"])
@pytest.mark.parametrize("competition", ["local", "global", "positions"])
def test_em_options_in_convolutions(start: str, competition: str) -> None:
    window = Window((4, 4), (3, 3), 1, competition, "matrix", torch.randn(9, 2))  # pyright: ignore[reportArgumentType]
    poses, weight = torch.randn(1, 4, 4, 2, 4), torch.randn(18, 3, 2, 2)
    sizes = Sizes(18, 3, 4, 4)
    check("em", poses, weight, window, betas(sizes), start=start, momentum=0.1, iters=3, sharpness=[1, 0.5, 1])
    check("em", poses, weight, window, start=start, variance_floor=0.01, mass_floor=1e-3, iters=1)


# Sums are kept in float32, so that only the results are rounded.
@pytest.mark.parametrize(("name", "dtype"), [("attention", torch.bfloat16), ("em", torch.float16)])
def test_half_precision_rounds_only_the_result(name: str, dtype: torch.dtype) -> None:
    given = {key: tensor.to(dtype) for key, tensor in TENSORS[name](Sizes(3, 2, 2, 3)).items()}
    inputs = [tensor.to(dtype) for tensor in (torch.randn(2, 3, 2), torch.rand(2, 3), torch.randn(3, 2, 2, 3))]
    inputs += given.values()

    def grads(backend: str, inputs: list[Tensor]) -> list[Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        out = run(name, backend, list(given), None, None, OPTIONS[name], *leaves)
        return [out, *torch.autograd.grad(out.sum(), leaves)]

    exact = grads("reference", [tensor.double() for tensor in inputs])
    for right, got in zip(exact, grads("triton", inputs), strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), right, rtol=2 * torch.finfo(dtype).eps, atol=2e-4)


def test_layers_take_the_kernel() -> None:
    dense = CapsLinear(3, 2, in_dim=2, out_dim=3, routing="kmeans")
    children = Capsules(torch.randn(2, 3, 2), torch.rand(2, 3))
    expected = dense(children)
    dense.backend = "triton"
    torch.testing.assert_close(dense(children).poses, expected.poses)
    conv = CapsConv2d(1, 2, 2, routing="em", backend="triton")
    grid = Capsules(torch.randn(1, 3, 2, 1, 16), torch.rand(1, 3, 2, 1))
    expected = conv(grid)
    conv.backend = "reference"
    torch.testing.assert_close(expected.activations, conv(grid).activations)


@pytest.mark.slow
def test_opcheck() -> None:
    layer = dense_layer(Capsules(torch.randn(2, 3, 2), torch.rand(2, 3)), torch.randn(3, 2, 2, 3))
    start = [tensor.requires_grad_() for tensor in layer[:3]]
    mean, sharp, level = torch.randn(2, 1, 2, 3), torch.rand(2, 1, 2, 3), torch.randn(2, 1, 2)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    keyed = (*start, mean, *[None] * 4, layer.window, [False, False, True, False])
    torch.library.opcheck(torch.ops.torchcaps.attend_triton.default, keyed, test_utils=checks)
    torch.library.opcheck(
        torch.ops.torchcaps.gaussian_triton.default,
        (*start, mean, sharp, level, None, None, layer.window, False),
        test_utils=checks,
    )


def test_double_backward_is_refused() -> None:
    poses = torch.randn(2, 3, 2, requires_grad=True)
    out = ops.route(Capsules(poses, torch.rand(2, 3)), torch.randn(3, 2, 2, 3), "kmeans", backend="triton", iters=1)
    (grad,) = torch.autograd.grad(out.poses.sum(), poses, create_graph=True)
    with raises_about(ConfigError, "backend", "'triton'"):
        grad.sum().backward()


def test_cases_that_other_backends_compute() -> None:
    children = Capsules(torch.randn(1, 3, 2, 1, 4), torch.rand(1, 3, 2, 1))
    window, weight = grid("positions", "matrix", offsets=False), torch.randn(4, 2, 2, 2)
    with raises_about(ConfigError, "backend", "positions"):
        ops.route_conv(children, weight, window, "kmeans", backend="triton")
    full = {"covariance": "full", **betas(Sizes(4, 2, 4, 4))}
    with raises_about(ConfigError, "backend", "diagonal"):
        ops.route_conv(children, weight, grid("local", "matrix"), "em", backend="triton", **full)
    wide = Capsules(torch.randn(1, 1, 16), torch.rand(1, 1))
    with raises_about(ConfigError, "backend", "tile"):
        ops.route(wide, torch.zeros(1, 1000, 16, 16), "kmeans", backend="triton")
