"""The C++ kernel of random routing in convolutional layers, without stored votes."""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops._attention_pass.grid import Pairs, attend_grid, computes_wide, squash_parents
from torchcaps.ops.conv import Window
from torchcaps.ops.random.reference import check_random_options, random_logits
from torchcaps.ops.squash import SquashForm
from torchcaps.types import Capsules


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    bias: Tensor | None = None,
    seed: int = 0,
    std: float = 1.0,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `random_routing`."""
    check_random_options(seed, std)
    count = window.kernel[0] * window.kernel[1] * children.poses.shape[3]
    logits = std * random_logits(count, weight.shape[1], seed=seed).to(weight)  # [K*K*I, J]
    return squash_parents(attend_grid(children, weight, window, pairs=Pairs(base=logits)), bias, squash)
