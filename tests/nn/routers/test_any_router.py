"""Every router in every capsule layer: it works, or the error gives the reason and an alternative."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.nn import ROUTERS, CapsConv1d, CapsConv2d, CapsConv3d, CapsLinear, ClassCaps, Router, make_router
from torchcaps.nn.conv import CapsConv
from torchcaps.types import Capsules, Trace

Layer = CapsLinear | CapsConv | ClassCaps
CENTRES = ([0.2, 0.5, 0.8], [0.2, 0.5, 0.8])
VECTORS: dict[str, Any] = {"dims": (4, 6), "pose": "vector"}
# Each with the shape of the children that it is given, and the numbers of samples, children and parents in its trace.
LAYERS: dict[str, tuple[Callable[[Router], Layer], tuple[int, ...], tuple[int, int, int]]] = {
    "dense": (lambda r: CapsLinear(7, 3, in_dim=4, out_dim=6, routing=r), (7, 4), (1, 7, 3)),
    "dense, shared": (lambda r: CapsLinear(None, 3, in_dim=4, out_dim=6, routing=r), (7, 4), (1, 7, 3)),
    "grid of matrices": (lambda r: CapsConv2d(2, 5, 2, routing=r), (3, 3, 2, 16), (4, 8, 5)),
    "grid of vectors": (lambda r: CapsConv2d(2, 5, 2, routing=r, **VECTORS), (3, 3, 2, 4), (4, 8, 5)),
    "local": (lambda r: CapsConv2d(2, 5, 2, routing=r, competition="local"), (3, 3, 2, 16), (4, 8, 5)),
    "classes": (lambda r: ClassCaps(2, 5, routing=r, centres=CENTRES), (3, 3, 2, 16), (1, 18, 5)),
    "classes of vectors": (lambda r: ClassCaps(2, 5, routing=r, **VECTORS), (3, 3, 2, 4), (1, 18, 5)),
    "signal": (lambda r: CapsConv1d(2, 5, 3, routing=r), (5, 2, 16), (3, 6, 5)),
    "signal, classes": (lambda r: ClassCaps(2, 5, routing=r, centres=CENTRES[:1]), (3, 2, 16), (1, 6, 5)),
    "volume": (lambda r: CapsConv3d(2, 5, 2, routing=r), (3, 2, 3, 2, 16), (4, 16, 5)),
    "volume, classes": (lambda r: ClassCaps(2, 5, routing=r, centres=[[0.1, 0.6]] * 3), (2, 2, 2, 2, 16), (1, 16, 5)),
}

everywhere = [pytest.mark.parametrize("layer", LAYERS), pytest.mark.parametrize("router", ROUTERS.names())]


def make(router: str, layer: str) -> Layer:
    """The layer in float64, which every router supports."""
    torch.manual_seed(0)
    build, _, _ = LAYERS[layer]
    return build(make_router(router)).double()


def some_children(layer: str, batch: int = 2) -> Capsules:
    poses = ops.squash(torch.randn(batch, *LAYERS[layer][1], dtype=torch.float64))
    return Capsules(poses.requires_grad_(), torch.linalg.vector_norm(poses, dim=-1).detach().requires_grad_())


def gradients(module: nn.Module, children: Capsules) -> dict[str, torch.Tensor | None]:
    inputs = {"poses": children.poses, "activations": children.activations}
    return {name: tensor.grad for name, tensor in (*inputs.items(), *module.named_parameters())}


def weighed(capsules: Capsules) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return sum(
        ((part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum() for part in capsules),
        torch.zeros((), dtype=torch.float64),
    )


@everywhere[0]
@everywhere[1]
def test_values_and_gradients_are_finite(router: str, layer: str) -> None:
    module, children = make(router, layer), some_children(layer)
    out = module(children)
    assert all(part.isfinite().all() for part in out)
    assert out.activations.min() >= 0
    assert out.activations.max() <= 1 + 1e-9
    weighed(out).backward()
    found = gradients(module, children)
    # A router that uses the lengths of votes ignores activations, except where they scale an offset.
    if not module.routing.reads_activations and getattr(module, "offsets", None) is None:
        assert found.pop("activations") is None
    for name, gradient in found.items():
        assert gradient is not None, name
        assert gradient.isfinite().all(), name
        assert gradient.count_nonzero() > 0, name


@everywhere[0]
@everywhere[1]
def test_inactive_children_are_finite(router: str, layer: str) -> None:
    module, children = make(router, layer), some_children(layer)
    absent = Capsules(*(torch.zeros_like(part).requires_grad_() for part in children))
    out = module(absent)
    weighed(out).backward()
    assert all(part.isfinite().all() for part in out)
    for name, gradient in gradients(module, absent).items():
        assert gradient is None or gradient.isfinite().all(), name


def trace_of(router: str, layer: str) -> tuple[Layer, Capsules, Trace]:
    module, children = make(router, layer), some_children(layer)
    return module, children, module.trace(children)


@everywhere[0]
@everywhere[1]
def test_trace_ends_in_result(router: str, layer: str) -> None:
    module, children, trace = trace_of(router, layer)
    positions, count, parents = LAYERS[layer][2]
    samples, iters = 2 * positions, getattr(module.routing, "iters", 1)
    out = module(children)
    size = out.poses.shape[-1]
    assert trace.votes.shape == (samples, count, parents, size)
    assert trace.logits.shape == trace.coupling.shape == (iters, samples, count, parents)
    assert trace.poses.shape == (iters, samples, parents, size)
    assert trace.activations.shape == (iters, samples, parents)
    torch.testing.assert_close(trace.poses[-1].flatten(), out.poses.flatten())
    torch.testing.assert_close(trace.activations[-1].flatten(), out.activations.flatten())


@everywhere[0]
@everywhere[1]
def test_coupling_sums_to_one_per_child(router: str, layer: str) -> None:
    module, children, trace = trace_of(router, layer)
    if "coupling_sums_to_one" not in module.routing.laws:
        pytest.skip(f"{router} does not declare the law")
    total = trace.coupling[-1].sum(-1)  # [B*H'*W', I]
    if isinstance(module, CapsConv) and module.competition == "global":
        # Positions of the kernel overlap, and the shares of a child are added up over them.
        window = module.window(children)
        kernels = total.reshape(2, -1, *window.kernel, 2)  # [B, H'*W', K, K, I]
        total = torch.zeros(2, *window.grid, 2, dtype=torch.float64)
        for number, position in enumerate(itertools.product(*map(range, window.positions))):
            under = tuple(slice(first, first + size) for first, size in zip(position, window.kernel, strict=True))
            total[(slice(None), *under)] += kernels[:, number]
    torch.testing.assert_close(total, torch.ones_like(total))


@everywhere[0]
@everywhere[1]
def test_samples_are_independent(router: str, layer: str) -> None:
    module, children = make(router, layer), some_children(layer, batch=3)
    if "samples_are_alone" not in module.routing.laws:
        pytest.skip(f"{router} does not declare the law")
    out = module(children)
    for sample in range(3):
        alone = module(Capsules(*(part[sample : sample + 1] for part in children)))
        torch.testing.assert_close(alone.poses[0], out.poses[sample])
        torch.testing.assert_close(alone.activations[0], out.activations[sample])


@pytest.mark.parametrize("router", ROUTERS.names())
def test_shared_weights_take_any_number_of_children(router: str) -> None:
    module = make(router, "dense, shared")
    for count in (1, 4, 9):
        poses = torch.randn(2, count, 4, dtype=torch.float64)
        assert module(Capsules(poses, poses.norm(dim=-1))).poses.shape == (2, 3, 6)


@pytest.mark.parametrize("layer", LAYERS)
def test_router_from_name_or_table(layer: str) -> None:
    build: Any = LAYERS[layer][0]
    assert type(build("kmeans").routing) is ROUTERS["kmeans"]
    assert build({"name": "kmeans", "iters": 5}).routing.iters == 5
    with raises_about(UnknownNameError, "'kmean'", "'kmeans'"):
        build("kmean")


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("router", ROUTERS.names())
def test_unsupported_kernel(router: str, layer: str) -> None:
    module: Any = make(router, layer)
    dense = isinstance(module, CapsLinear)
    kernels = [kernel for kernel in ops.ROUTINGS[router].kernels if kernel.backend == "cpu"]
    if not kernels or (kernels[0].dense if dense else kernels[0].conv) is not None:
        return
    module.backend = "cpu"
    with raises_about(ConfigError, "backend", "'cpu'"):
        module(some_children(layer))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("router", ROUTERS.names())
def test_recompute_serves_every_layer(router: str, layer: str) -> None:
    module: Any = make(router, layer)
    children, results = some_children(layer), []
    for module.backend in ("recompute", "reference"):
        results.append(module(children))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


SQUASHED = [name for name in ROUTERS.names() if "squash" in inspect.signature(ROUTERS[name]).parameters]


@pytest.mark.parametrize("form", ["standard", "half", "exponential"])
@pytest.mark.parametrize("router", SQUASHED)
def test_squash_form_is_an_option(router: str, form: str) -> None:
    torch.manual_seed(0)
    layer = CapsLinear(6, 3, in_dim=4, out_dim=5, routing={"name": router, "squash": form})
    children = Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))
    default = make_router(router).options()["squash"]
    torch.manual_seed(0)
    other = CapsLinear(6, 3, in_dim=4, out_dim=5, routing=router)(children)
    assert torch.allclose(out.activations, other.activations) == (form == default)


@pytest.mark.parametrize("router", SQUASHED)
def test_unknown_squash_form(router: str) -> None:
    with raises_about(ConfigError, "squash", "'cubic'"):
        make_router({"name": router, "squash": "cubic"})
