"""Routing of one sample after the other in exported graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from torchcaps.ops.conv import Window
from torchcaps.types import Capsules

# Numbers in the votes of one sample from which on the samples of a batch are routed one after the other.
LARGE = 2**16


def map_samples(
    route: Callable[..., Capsules], children: Capsules, weight: Tensor, window: Window, each: Mapping[str, Tensor]
) -> Capsules:
    """Route a grid of children; in an exported graph with large votes, sample by sample.

    A graph stores the votes. Those of one sample stay in a cache, those of a batch do not: a Scan over the samples is
    several times faster there. Graphs that are exported with gradients have no Scan, because torch cannot trace its
    gradient for every shape.

    Args:
        route: `(children, **each) -> Capsules`, for a batch of any size.
        children: The lower capsules.
        weight: The matrices of the votes.
        window: How the kernel lies on the grid.
        each: Further arguments, which have one entry per sample and position.

    Shape:
        children: [B, H, W, I, P]; each: [B*H'*W', ...]; returns [B, H', W', J, D].

    Returns:
        The parents.
    """
    forward_only = torch.compiler.is_exporting() and not torch.is_grad_enabled()
    if not forward_only or _count_votes(children, weight, window) < LARGE:
        return route(children, **each)
    # Private, as are all operators of torch.export that contain a graph.
    from torch._higher_order_ops.scan import scan

    names, positions = tuple(each), math.prod(window.positions)

    def step(carry: Tensor, sample: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        poses, activations, *others = sample
        one = Capsules(poses.unsqueeze(0), activations.unsqueeze(0))
        parents = route(one, **dict(zip(names, others, strict=True)))
        # Outputs of a step must be tensors of their own.
        return carry.clone(), (parents.poses.squeeze(0).clone(), parents.activations.squeeze(0).clone())

    rows = [value.unflatten(0, (-1, positions)) for value in each.values()]  # [B, H'*W', ...]
    # Tracing looks at the gradients of the inputs, which are not leaves where a layer below has parameters.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        # The first scan of a process imports modules of torch that use what torch itself deprecates.
        warnings.filterwarnings("ignore", message=".*torch.jit.script_method", category=DeprecationWarning)
        _, parents = scan(step, children.poses.new_zeros(()), (children.poses, children.activations, *rows))
    return Capsules(*parents)


def _count_votes(children: Capsules, weight: Tensor, window: Window) -> int:
    size = weight.shape[-1] * (weight.shape[-2] if window.pose == "matrix" else 1)
    seen = math.prod(window.positions) * math.prod(window.kernel) * children.poses.shape[-2]
    return seen * weight.shape[1] * size
