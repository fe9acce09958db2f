"""The C++ kernel of attention over the votes of a grid, in every routing that uses it, compared with the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import Window, _native
from torchcaps.ops._attention_pass.grid import Pairs, attend_grid
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))

# Grid, kernel, stride, child types, parent types, batch; some places are unseen.
GRIDS = [
    ((1, 1), (1, 1), 1, 1, 1, 21),
    ((5, 6), (3, 3), 2, 2, 3, 2),
    ((6, 5), (3, 2), 1, 1, 5, 3),
    ((7, 5), (2, 3), 3, 2, 3, 17),
    ((3, 4), (3, 4), 1, 3, 5, 4),
]
# Kind of pose, child pose, parent pose.
POSES: list[tuple[Any, int, int]] = [("vector", 5, 7), ("vector", 8, 16), ("matrix", 4, 4), ("matrix", 9, 9)]
# Of each routing: options, and the shapes of its learned tensors from (pairs of place and type, parents, P, D).
Shapes = Callable[[int, int, int, int], dict[str, tuple[int, ...]]]
ROUTINGS: dict[str, tuple[str, dict[str, Any], Shapes]] = {
    "dynamic": ("dynamic", {"iters": 3}, lambda n, j, p, d: {}),
    "dynamic, bias": ("dynamic", {"iters": 2}, lambda n, j, p, d: {"bias": (j, d)}),
    "dynamic, leaky": ("dynamic", {"iters": 3, "leaky": True}, lambda n, j, p, d: {}),
    "dynamic, last": ("dynamic", {"iters": 3, "grad": "last"}, lambda n, j, p, d: {}),
    "dynamic, exponential": ("dynamic", {"iters": 2, "squash": "exponential"}, lambda n, j, p, d: {}),
    "kmeans": ("kmeans", {"iters": 3, "inverse_temp": 2.0}, lambda n, j, p, d: {}),
    "attention": ("attention", {"iters": 2}, lambda n, j, p, d: {"gain": (d,), "offset": (d,)}),
    "self_attention": ("self_attention", {}, lambda n, j, p, d: {"prior": (n, j)}),
    "self_attention, one prior": ("self_attention", {}, lambda n, j, p, d: {"prior": (1, j)}),
    "self_routing": ("self_routing", {}, lambda n, j, p, d: {"route_weight": (n, j, p), "route_bias": (n, j)}),
    "self_routing, shared": ("self_routing", {}, lambda n, j, p, d: {"route_weight": (j, p)}),
    "uniform": ("uniform", {}, lambda n, j, p, d: {"bias": (j, d)}),
    "random": ("random", {"seed": 3}, lambda n, j, p, d: {"bias": (j, d)}),
}


def make_inputs(name: str, sizes: Any, poses: Any, *, shared: bool = False) -> tuple[list[Tensor], list[str]]:
    """Return poses, activations, weight and the learned tensors of a routing, and the names of the latter."""
    grid, kernel, _, types, parents, batch = sizes
    kind, in_dim, out_dim = poses
    generator = torch.Generator().manual_seed(sum(grid) + parents + in_dim)
    side = round(in_dim**0.5)
    matrix = (side, side) if kind == "matrix" else (in_dim, out_dim)
    pairs = types * kernel[0] * kernel[1]
    learned = ROUTINGS[name][2](pairs, parents, in_dim, out_dim)
    tensors = [
        torch.randn(batch, *grid, types, in_dim, generator=generator),
        torch.rand(batch, *grid, types, generator=generator),
        0.5 * torch.randn(types if shared else pairs, parents, *matrix, generator=generator),
        *(0.3 * torch.randn(shape, generator=generator) for shape in learned.values()),
    ]
    return tensors, list(learned)


def make_window(sizes: Any, poses: Any, competition: Any = "global", *, offsets: bool = False) -> Window:
    grid, kernel, stride, *_ = sizes
    places = kernel[0] * kernel[1]
    given = 0.3 * torch.randn(places, 2, generator=torch.Generator().manual_seed(5)) if offsets else None
    return Window(grid, kernel, stride, competition, poses[0], given)


def route(name: str, backend: str, window: Window, names: list[str]) -> Callable[..., Tensor]:
    """Return an implementation as a function from tensors to poses and activations in one tensor."""
    algorithm, options, _ = ROUTINGS[name]

    def run(poses: Tensor, activations: Tensor, weight: Tensor, *learned: Tensor) -> Tensor:
        given = {**options, **dict(zip(names, learned, strict=True))}
        children = Capsules(poses, activations)
        out = joined(ops.route_conv(children, weight, window, algorithm, backend=backend, **given))
        # Without offsets, only routings that read activations have a gradient of them.
        return out + 0 * activations.sum()

    return run


def compare(name: str, sizes: Any, poses: Any, window: Window, *, shared: bool = False, dtype=torch.float32) -> None:
    inputs, names = make_inputs(name, sizes, poses, shared=shared)
    kernel, reference = (route(name, backend, window, names) for backend in ("cpu", "reference"))
    assert_matches_reference(kernel, reference, inputs, dtype=dtype, factor=8, draws=3)


@pytest.mark.parametrize("sizes", GRIDS, ids=str)
@pytest.mark.parametrize("name", ROUTINGS)
def test_every_grid(name: str, sizes: Any) -> None:
    poses = ("vector", 5, 7)
    compare(name, sizes, poses, make_window(sizes, poses))


@pytest.mark.parametrize("poses", POSES, ids=str)
@pytest.mark.parametrize("competition", ["global", "local", "positions"])
@pytest.mark.parametrize("name", ROUTINGS)
def test_every_competition_and_pose(name: str, competition: str, poses: Any) -> None:
    compare(name, GRIDS[1], poses, make_window(GRIDS[1], poses, competition, offsets=True))


@pytest.mark.parametrize("name", ROUTINGS)
def test_shared_weight_and_float64(name: str) -> None:
    poses = ("matrix", 4, 4)
    compare(name, GRIDS[4], poses, make_window(GRIDS[4], poses, offsets=True), shared=True)
    compare(name, GRIDS[3], poses, make_window(GRIDS[3], poses), dtype=torch.float64)


@pytest.mark.parametrize("name", ROUTINGS)
def test_auto_takes_the_kernel(name: str) -> None:
    poses = ("vector", 8, 16)
    inputs, names = make_inputs(name, GRIDS[1], poses)
    window = make_window(GRIDS[1], poses)
    assert torch.equal(route(name, "auto", window, names)(*inputs), route(name, "cpu", window, names)(*inputs))


@pytest.mark.parametrize("name", ROUTINGS)
def test_threads_do_not_change_a_bit(name: str) -> None:
    poses = ("vector", 8, 16)
    sizes = ((14, 14), (3, 3), 2, 4, 8, 20)
    inputs, names = make_inputs(name, sizes, poses)
    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = route(name, "cpu", make_window(sizes, poses), names)(*leaves)
        # Gradients of learned tensors may come from torch's operators, whose sums depend on the threads.
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves[:3])])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(first, second) for first, second in zip(found[0], other, strict=True))


def test_attention_starts_from_given_parents() -> None:
    poses = ("vector", 8, 16)
    (grid, activations, weight), _ = make_inputs("kmeans", GRIDS[1], poses)
    window = make_window(GRIDS[1], poses)
    parents = torch.randn(len(grid) * 4, 3, 16)
    found, expected = (
        ops.route_conv(
            Capsules(grid, activations), weight, window, "attention", backend=backend, parents=parents, iters=1
        )
        for backend in ("cpu", "reference")
    )
    torch.testing.assert_close(found, expected)


def test_sixteen_bits_are_computed_in_float32() -> None:
    poses = ("vector", 8, 16)
    inputs, names = make_inputs("dynamic", GRIDS[1], poses)
    window = make_window(GRIDS[1], poses)
    half = [tensor.bfloat16() for tensor in inputs]
    expected = route("dynamic", "cpu", window, names)(*(tensor.float() for tensor in half))
    assert torch.equal(route("dynamic", "cpu", window, names)(*half), expected.bfloat16())


def test_wrong_sizes_are_named() -> None:
    (poses, activations, weight), _ = make_inputs("kmeans", GRIDS[1], POSES[1])
    window = make_window(GRIDS[1], POSES[1])
    children = Capsules(poses, activations)
    with raises_about(ShapeError, "key:", "(2, 2, 2, 3, 16)"):
        attend_grid(children, weight, window, torch.zeros(2, 2, 2, 3, 15))
    with raises_about(ShapeError, "prior:", "(18, 3)"):
        attend_grid(children, weight, window, pairs=Pairs(prior=torch.zeros(3, 18)))
    with raises_about(ShapeError, "bias:", "(3, 16)"):
        ops.route_conv(children, weight, window, "uniform", backend="cpu", bias=torch.zeros(16, 3))
    with raises_about(ConfigError, "weighted:"):
        torch.ops.torchcaps.grid_attention(
            poses, activations, weight, torch.zeros(2, 2, 2, 3, 16), None, None, None, None, [3, 3, 2, 0, 0, 0],
            False, True, True,
        )  # fmt: skip
