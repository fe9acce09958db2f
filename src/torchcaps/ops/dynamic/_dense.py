"""The part that the kernels of dynamic routing share: checks, empty inputs and activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.ops.dynamic.reference import GradMode, check_routing_options, dynamic_routing
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight, vote
from torchcaps.types import Capsules

# (poses, weight, bias, iters, leaky, last_only, squash) -> poses of the parents [B, J, D]
Compute = Callable[[Tensor, Tensor, Tensor | None, int, bool, bool, SquashForm], Tensor]


def dense_kernel(compute: Compute) -> Callable[..., Capsules]:
    """Make `Kernel.dense` of a function that computes the poses of the parents."""

    def dense(
        children: Capsules,
        weight: Tensor,
        *,
        bias: Tensor | None = None,
        iters: int = 3,
        leaky: bool = False,
        grad: GradMode = "all",
        squash: SquashForm = "standard",
    ) -> Capsules:
        poses = children.poses
        check_poses_and_weight(poses, weight)
        check_routing_options(iters, grad, squash)
        check_parent_bias(bias, weight)
        if 0 in poses.shape or 0 in weight.shape:
            # Nothing to compute, but the result needs its shape and its graph.
            return dynamic_routing(
                vote(poses, weight), bias=bias, iters=iters, leaky=leaky, grad=grad, squash=squash
            ).capsules
        out = compute(poses, weight, bias, iters, leaky, grad == "last", squash)  # [B, J, D]
        return Capsules(out, torch.linalg.vector_norm(out, dim=-1))

    return dense
