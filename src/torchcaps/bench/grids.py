"""A convolutional layer with each router: kernel, if there is one, `recompute` and reference."""

from __future__ import annotations

import inspect
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from torchcaps.bench._case import CASES, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench._layer import forward_and_backward
from torchcaps.bench.em import CHECKED, LAYER, make_children, vote_bytes
from torchcaps.bench.routers import candidates
from torchcaps.nn import ROUTERS, CapsConv2d, make_router
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules


def layer_tasks(name: str, backend: str, point: Point) -> Tasks:
    """Return the tasks of a layer, with the gradients of children, weight and router parameters.

    Args:
        name: Name of the router.
        backend: Backend of the layer.
        point: Sizes of the measurement.

    Returns:
        Forward, and forward with backward.
    """
    torch.manual_seed(0)
    options = {"iters": point["iters"]} if "iters" in point else {}
    router = make_router({"name": name, **options})
    layer = CapsConv2d(point["types"], point["parents"], 3, 2, routing=router, backend=backend)
    children = make_children(point)
    read = [children.poses, children.activations] if router.reads_activations else [children.poses]
    return forward_and_backward(lambda: layer(children), [*read, *layer.parameters()])


def check_kernel(name: str) -> None:
    """Compare what `auto` selects, and `recompute`, with the reference on small layers."""
    torch.manual_seed(0)
    for grid, types, parents, kernel, stride in CHECKED:
        layer = CapsConv2d(types, parents, kernel, stride, routing=make_router(name))
        # Random parameters, because initial values may have no effect.
        for parameter in layer.routing.parameters():
            nn.init.normal_(parameter)
        children = make_children({"batch": 3, "grid": grid, "types": types})
        for backend in ("auto", "recompute"):
            assert_matches_reference(
                partial(_run, layer, backend),
                partial(_run, layer, "reference"),
                [children.poses, *layer.parameters()],
                factor=8,
            )


def _run(layer: CapsConv2d, backend: str, poses: Tensor, *parameters: Tensor) -> Tensor:
    layer.backend = backend
    values = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
    children = Capsules(poses, poses[..., 0].sigmoid())
    out: Capsules = functional_call(layer, values, (children,))
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)


def add_grid(name: str) -> None:
    """Register the benchmark `conv_<name>` of a router."""
    base = dict(LAYER)
    if "iters" not in inspect.signature(ROUTERS[name]).parameters:
        del base["iters"]
    CASES.add(
        f"conv_{name}",
        Case(
            title=f"A convolutional layer with {name} routing: 8 to 16 types of 4x4 poses, 3x3, stride 2, on 14x14",
            candidates=candidates(name, layer_tasks, lambda point: 20 * vote_bytes(point), conv=True),
            points=one_axis_sweep(base, batch=(8, 64)),
            quick=({**base, "batch": 4},),
            check=partial(check_kernel, name),
        ),
    )


for _name in sorted(ROUTERS):
    add_grid(_name)
