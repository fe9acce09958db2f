"""The DigitCaps layer, 1152 x 8 -> 10 x 16 in three iterations: kernel, reference and baselines."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench._layer import CHECKED, DIGIT_CAPS, IN_DIM, OUT_DIM, forward_and_backward, vote_bytes
from torchcaps.bench.baselines import broadcast_routing, einsum_routing
from torchcaps.ops import dynamic_routing, route, vote
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

Layer = Callable[[Tensor, Tensor, Tensor, int], Tensor]

# 1024 * 1526 * 100 * 16 * 4 bytes = 10.0 GB of votes.
TEN_GIGABYTES: Point = {"batch": 1024, "children": 1526, "parents": 100, "iters": 3}


def fused(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """Route with the fastest kernel that is available, as `CapsLinear` does.

    Args:
        poses: Poses of the children [B, I, P].
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.

    Returns:
        Poses of the parents [B, J, D].
    """
    return _kernel(poses, weight, bias, iters=iters)


def recompute(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """Route with the backend `recompute`.

    Args:
        poses: Poses of the children [B, I, P].
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.

    Returns:
        Poses of the parents [B, J, D].
    """
    return _kernel(poses, weight, bias, iters=iters, backend="recompute")


def reference(poses: Tensor, weight: Tensor, bias: Tensor, iters: int) -> Tensor:
    """Route with the reference.

    Args:
        poses: Poses of the children [B, I, P].
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.

    Returns:
        Poses of the parents [B, J, D].
    """
    return _reference(poses, weight, bias, iters=iters)


def layer_tasks(layer: Layer, point: Point) -> Tasks:
    """Return the tasks of a layer, with the gradients of poses, weight and bias."""
    generator = torch.Generator().manual_seed(0)
    children, parents = point["children"], point["parents"]
    poses = torch.rand(point["batch"], children, IN_DIM, generator=generator).sub_(0.5).requires_grad_()
    weight = torch.randn(children, parents, IN_DIM, OUT_DIM, generator=generator).mul_(0.1).requires_grad_()
    bias = torch.full((parents, OUT_DIM), 0.1, requires_grad=True)
    return forward_and_backward(lambda: [layer(poses, weight, bias, point["iters"])], (poses, weight, bias))


def _candidate(name: str, layer: Layer, copies: int, *, compiled: bool = False) -> Candidate:
    """Return a candidate whose peak memory is `copies` times the size of the votes."""

    def prepare(point: Point) -> Tasks:
        if not compiled:
            return layer_tasks(layer, point)
        # Without a reset torch counts points as recompilations, and runs eagerly after eight of them.
        torch.compiler.reset()
        return layer_tasks(torch.compile(layer, dynamic=False), point)

    def memory_needed(point: Point) -> float:
        return copies * vote_bytes(point)

    return Candidate(name, prepare, memory_needed, compiled=compiled)


def check_kernel() -> None:
    """Compare the kernel that `auto` selects with the reference: odd sizes, the layer of the paper, all options."""
    generator = torch.Generator().manual_seed(0)
    for batch, children, parents, in_dim, out_dim in (*CHECKED, (1, 1, 1, 1, 1)):
        poses = torch.randn(batch, children, in_dim, generator=generator)
        weight = 0.3 * torch.randn(children, parents, in_dim, out_dim, generator=generator)
        bias = torch.randn(parents, out_dim, generator=generator)
        for shared, leaky, grad in itertools.product((False, True), (False, True), ("all", "last")):
            options = {"iters": 3, "leaky": leaky, "grad": grad}
            assert_matches_reference(
                functools.partial(_kernel, **options),
                functools.partial(_reference, **options),
                [poses, weight[0] if shared else weight, bias],
            )


def _kernel(poses: Tensor, weight: Tensor, bias: Tensor, **options: Any) -> Tensor:
    # Dynamic routing does not read activations: to compute lengths is not part of the work that is compared.
    children = Capsules(poses, poses.detach()[..., 0])
    return route(children, weight, "dynamic", bias=bias, **options).poses


def _reference(poses: Tensor, weight: Tensor, bias: Tensor, **options: Any) -> Tensor:
    return dynamic_routing(vote(poses, weight), bias=bias, **options).poses


CASES.add(
    "dynamic",
    Case(
        title="The DigitCaps layer: 1152 capsules of 8 to 10 capsules of 16, three iterations",
        candidates=(
            _candidate("fused", fused, 0),
            _candidate("recompute", recompute, 0),
            _candidate("reference", reference, 5),
            _candidate("reference, torch.compile", reference, 4, compiled=True),
            _candidate("einsum baseline", einsum_routing, 5),
            _candidate("broadcast baseline", broadcast_routing, 19),
        ),
        points=(
            *one_axis_sweep(
                DIGIT_CAPS,
                batch=(16, 32, 64, 256),
                children=(288, 576, 2304, 4608),
                parents=(5, 20, 40),
                iters=(1, 2, 5),
            ),
            TEN_GIGABYTES,
        ),
        quick=({**DIGIT_CAPS, "batch": 16},),
        check=check_kernel,
    ),
)
