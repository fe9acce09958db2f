"""The DigitCaps layer with each router: kernel, if there is one, `recompute` and reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench._layer import CHECKED, DIGIT_CAPS, IN_DIM, OUT_DIM, forward_and_backward, vote_bytes
from torchcaps.nn import ROUTERS, CapsLinear, make_router
from torchcaps.ops import ROUTINGS
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules


def capsules(poses: Tensor) -> Capsules:
    """Return children whose activations are the lengths of their poses."""
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))


def layer_tasks(name: str, backend: str, point: Point) -> Tasks:
    """Return the tasks of a layer, with the gradients of all that the router reads.

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
    layer = CapsLinear(point["children"], point["parents"], IN_DIM, OUT_DIM, routing=router, backend=backend)
    poses = torch.rand(point["batch"], point["children"], IN_DIM).sub_(0.5).requires_grad_()
    # Lengths that were given: to compute them is not part of the layer.
    children = Capsules(poses, capsules(poses.detach()).activations.requires_grad_(router.reads_activations))
    read = [*children] if router.reads_activations else [poses]
    return forward_and_backward(lambda: layer(children), [*read, *layer.parameters()])


def check_kernel(name: str) -> None:
    """Compare the kernel that `auto` selects with the reference, with one weight per child and with a shared one."""
    # The gradients of betas have few entries, so that the reference may be right by chance.
    factor = 16 if name in ("em", "variational") else 4
    torch.manual_seed(0)
    for batch, children, parents, in_dim, out_dim in CHECKED:
        for in_caps in (children, None):
            layer = CapsLinear(in_caps, parents, in_dim, out_dim, routing=make_router(name))
            # Random parameters, because initial values may have no effect.
            for parameter in layer.routing.parameters():
                nn.init.normal_(parameter)
            assert_matches_reference(
                partial(_run, layer, "auto"),
                partial(_run, layer, "reference"),
                [torch.randn(batch, children, in_dim), *layer.parameters()],
                factor=factor,
            )


def _run(layer: CapsLinear, backend: str, poses: Tensor, *parameters: Tensor) -> Tensor:
    layer.backend = backend
    values = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
    out: Capsules = functional_call(layer, values, (capsules(poses),))
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)


def candidates(
    router: str, tasks: Callable[[str, str, Point], Tasks], needs: Callable[[Point], float], *, conv: bool
) -> tuple[Candidate, ...]:
    """Return the kernel of a router, if there is one, `recompute` and the reference, which needs some memory.

    Args:
        router: Name of the router.
        tasks: Makes the tasks from router, backend and point.
        needs: Returns the bytes that the reference needs at a point.
        conv: Whether the layer is convolutional.

    Returns:
        The candidates, the fastest first.
    """
    made = [Candidate(backend, partial(tasks, router, backend)) for backend in ("recompute", "reference")]
    made[1] = replace(made[1], memory_needed=needs)
    kernels = ROUTINGS[router].kernels if router in ROUTINGS else ()
    compiled = any(k.backend == "cpu" and (k.conv if conv else k.dense) is not None for k in kernels)
    if compiled:
        made.insert(0, Candidate("fused", partial(tasks, router, "auto")))
    return tuple(made)


def add_router(name: str, title: str, copies: float, case: str | None = None) -> None:
    """Register a benchmark of a router whose reference needs `copies` times the size of the votes.

    Its name is that of the router unless `case` is given.

    Args:
        name: Name of the router.
        title: Title of the page.
        copies: Memory of the reference, in sizes of the votes.
        case: Name of the benchmark.
    """

    def reference_needs(point: Point) -> float:
        return copies * vote_bytes(point)

    # Half of the batch of the paper: the gradients of the weight are a larger part of the memory.
    base = {**DIGIT_CAPS, "batch": 64}
    if "iters" not in inspect.signature(ROUTERS[name]).parameters:
        del base["iters"]
    CASES.add(
        case or name,
        Case(
            title=f"The DigitCaps layer with {title}: 1152 capsules of 8 to 10 capsules of 16",
            candidates=candidates(name, layer_tasks, reference_needs, conv=False),
            points=one_axis_sweep(base, batch=(16, 128), children=(288, 4608), parents=(5, 20)),
            quick=({**base, "batch": 16},),
            check=partial(check_kernel, name),
        ),
    )


# Titles, and the memory of the reference in sizes of the votes, as measured.
KNOWN = {
    "kmeans": ("k-means routing", 5),
    "attention": ("inverted dot-product attention", 5),
    "self_attention": ("self-attention routing", 5),
    "self_routing": ("self-routing", 3),
    "variational": ("variational Bayes", 15),
    "kuramoto": ("synchronisation", 22),
    "uniform": ("uniform routing", 3),
    "random": ("random routing", 3),
}
# Dynamic routing has a case with baselines, EM one in a convolutional layer, Heinsen's one on sequences.
for _name in sorted(set(ROUTERS) - {"dynamic", "em", "heinsen"}):
    add_router(_name, *KNOWN.get(_name, (f"{_name} routing", max(copies for _, copies in KNOWN.values()))))
add_router("em", "EM routing", 14, case="em_dense")
add_router("dynamic", "dynamic routing", 5, case="dynamic_dense")
