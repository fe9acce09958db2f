"""Which images to show of what several networks said."""

from __future__ import annotations

from torch import Tensor

# The headings of the groups, and how many images of each are shown.
SHOWN = {"All networks are right": 8, "They differ": 16, "All are wrong": 8}


def group_images(right: Tensor) -> list[tuple[str, int, list[int]]]:
    """A heading, how many images to show under it, and the places of all that belong there; right is [networks, N].

    >>> import torch
    >>> group_images(torch.tensor([[True, True, False], [True, False, False]]))
    [('All networks are right', 8, [0]), ('They differ', 16, [1]), ('All are wrong', 8, [2])]
    """
    every, any_one = right.all(dim=0), right.any(dim=0)  # [N]
    masks = (every, any_one & ~every, ~any_one)
    pairs = zip(SHOWN.items(), masks, strict=True)
    return [(words, many, mask.nonzero().flatten().tolist()) for (words, many), mask in pairs]
