"""The E-step of the authors' released program in its convolutional layers, for comparison with that program alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops._groups import Groups
from torchcaps.ops._iterations import Background, ParentSoftmax

if TYPE_CHECKING:
    from torchcaps.ops.conv import Window

# What the program adds to its sums of densities, and what the sums of its fast variant are raised to.
SUM_FLOOR, FAST_SUM_FLOOR = 1e-7, 1e-6


def released_softmax(window: Window, *, fast: bool = False) -> ParentSoftmax:
    """Make the coupling of the released program out of logits.

    The program divides densities by their largest value on the whole map, not by the largest one of a child, before it
    sums them, and keeps the sum from zero. Children whose best density is about 1e-7 of the best one on the map get
    little or no coupling. Its default variant lets a child choose among positions, for each type of parent by itself:

        coupling_e = e^(l_e - m) / (1e-7 + sum over the group of e of e^(l - m)),   m the largest l of its two types.

    The group of position p and kernel place k is p + k along each axis. That is the place of the child for a stride of
    1. For a larger stride it is a mistake of the program (stride * p + k is the place), kept here because equality with
    the program needs it. The fast variant lets a child choose among all types at all positions, as the paper says:

        coupling_e = e^(l_e - m) / max(1e-6, sum over the parents of e^(l - m)),    m the largest l of its own type.

    Args:
        window: How the kernel lies on the grid of children.
        fast: The fast variant instead of the default one.

    Returns:
        A function from logits [B*H'*W', K*K*I, J] to coupling of the same shape.

    Raises:
        ConfigError: From the function, if it is called with a background.
    """
    stride = window.stride if fast else 1
    groups = None
    if torch.compiler.is_exporting():
        groups = Groups(_grid(window, stride), window.positions, window.kernel, stride)

    def softmax(logits: Tensor, /, *, background: Background = None) -> Tensor:
        if background is not None:
            raise ConfigError(
                f"background: expected None with the released normaliser, got {background} (it has its own)"
            )
        each = logits.unflatten(1, (window.places, -1))  # [B*H'*W', K*K, I, J]
        each = each.unflatten(0, (-1, math.prod(window.positions))).flatten(1, 2)  # [B, H'*W'*K*K, I, J]
        top = each.amax(dim=(1, 3) if fast else 1, keepdim=True)  # [B, 1, I, 1 or J]
        density = (each - top).exp()  # [B, H'*W'*K*K, I, J]
        own = density.sum(dim=3, keepdim=True) if fast else density  # [B, H'*W'*K*K, I, 1 or J]
        if groups is not None:
            total = groups.sum(own.flatten(2)).view(own.shape)  # [B, H'*W'*K*K, I, 1 or J]
        else:
            group, count = _places(window, stride, logits.device)  # [H'*W'*K*K]
            total = own.new_zeros(own.shape[0], count, *own.shape[2:])  # [B, groups, I, 1 or J]
            total = total.index_add(1, group, own)[:, group]  # [B, H'*W'*K*K, I, 1 or J]
        total = total.clamp_min(FAST_SUM_FLOOR) if fast else total + SUM_FLOOR
        return (density / total).reshape(logits.shape)  # [B*H'*W', K*K*I, J]

    return softmax


def _places(window: Window, stride: int, device: torch.device) -> tuple[Tensor, int]:
    """The place that each kernel place falls on where positions are `stride` apart, [H'*W'*K*K], and their number."""
    grid = _grid(window, stride)
    places = torch.arange(math.prod(grid), device=device).view(1, *grid)
    for axis, size in enumerate(window.kernel, 1):
        places = places.unfold(axis, size, stride)
    return places.flatten(), math.prod(grid)


def _grid(window: Window, stride: int) -> list[int]:
    return [(count - 1) * stride + size for count, size in zip(window.positions, window.kernel, strict=True)]
