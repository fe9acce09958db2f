"""The C++ kernel of uniform routing in convolutional layers, without stored votes."""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops._attention_pass.grid import attend_grid, squash_parents
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.squash import SquashForm
from torchcaps.types import Capsules


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    bias: Tensor | None = None,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `uniform_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        bias: Bias of the parents [J, D]; None for none.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    return squash_parents(attend_grid(children, weight, window), bias, squash)
