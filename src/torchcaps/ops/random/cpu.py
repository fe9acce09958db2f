"""The C++ kernel of random routing, without stored votes and without a copy of the weight."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchcaps.ops._attention_pass.grid import Pairs, attend_grid, squash_parents
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.random.reference import check_random_options, random_logits
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.votes import check_poses_and_weight
from torchcaps.types import Capsules


def unsupported(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding; None for a dense layer.
        **params: Other options of the routing.

    Returns:
        The reason, or None.
    """
    return None if children.poses.shape[1] else "the kernel has at least one child"


def dense(
    children: Capsules,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    seed: int = 0,
    std: float = 1.0,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D], as a grid whose window covers it.

    Args:
        children: The children.
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        seed: Seed.
        std: Standard deviation of the logits.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    check_poses_and_weight(children.poses, weight)
    poses, activations = (tensor[:, :, None, None] for tensor in children)  # [B, I, 1, 1, P], [B, I, 1, 1]
    weight = weight.unsqueeze(0) if weight.dim() == 3 else weight
    size = (poses.shape[1], 1)
    options: dict[str, Any] = {"bias": bias, "seed": seed, "std": std, "squash": squash}
    parents = conv(Capsules(poses, activations), weight, Window(size, size, pose="vector"), **options)
    return Capsules(parents.poses[:, 0, 0], parents.activations[:, 0, 0])


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
    """Route a grid of children [B, H, W, I, P] through a window; see `random_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        bias: Bias of the parents [J, D]; None for none.
        seed: Seed.
        std: Standard deviation of the logits.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    check_random_options(seed, std)
    count = window.places * children.poses.shape[-2]
    logits = std * random_logits(count, weight.shape[1], seed=seed).to(weight)  # [K*K*I, J]
    total = attend_grid(children, weight, window, pairs=Pairs(base=logits), through=False)  # [B, H', W', J, D]
    return squash_parents(total, bias, squash)
