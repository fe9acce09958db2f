"""Masks: children that are padding, and parents that see no child."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.types import Capsules


def expand_mask(mask: Tensor, children: Capsules) -> Tensor:
    """Return a mask with one entry per child.

    Args:
        mask: True where a child is present.
        children: The children.

    Shape:
        mask: bool [B, I], or [B, H, W, I] or [B, H, W] of a grid; returns the shape of the activations.

    Returns:
        The mask.

    Raises:
        ShapeError: If the mask is not bool or does not fit the children.

    Example:
        >>> grid = Capsules(torch.zeros(1, 2, 2, 3, 8), torch.zeros(1, 2, 2, 3))
        >>> expand_mask(torch.ones(1, 2, 2, dtype=torch.bool), grid).shape
        torch.Size([1, 2, 2, 3])
    """
    shape = children.poses.shape[:-1]
    if mask.dtype != torch.bool:
        raise ShapeError(f"mask: expected bool, True where a child is present, got {mask.dtype}")
    if len(shape) > 2 and mask.shape == shape[:-1]:
        mask = mask.unsqueeze(-1).expand(shape)  # [B, H, W, I]
    if mask.shape != shape:
        raise ShapeError(f"mask: expected {tuple(shape)}, one entry per child, got {tuple(mask.shape)}")
    return mask


def mask_children(children: Capsules, mask: Tensor | None) -> Capsules:
    """Return children whose masked ones are absent: pose and activation 0, whatever they were, and no gradient.

    Args:
        children: The children.
        mask: True where a child is present, None where all are.

    Shape:
        children: [B, I, P] or [B, H, W, I, P]; mask: bool [B, I], [B, H, W, I] or [B, H, W].

    Returns:
        The children; without a mask the same ones.

    Raises:
        ShapeError: If the mask does not fit.

    Example:
        >>> children = Capsules(torch.full((1, 2, 3), torch.nan), torch.ones(1, 2))
        >>> mask_children(children, torch.tensor([[False, True]])).activations
        tensor([[0., 1.]])
    """
    if mask is None:
        return children
    mask = expand_mask(mask, children)
    return Capsules(children.poses.masked_fill(~mask.unsqueeze(-1), 0), children.activations.masked_fill(~mask, 0))


def clear_unseen(parents: Capsules, seen: Tensor) -> Capsules:
    """Return parents of which those without any child are 0: seen is bool [B] or [B, H', W'] for [..., J, D]."""
    return Capsules(
        parents.poses.masked_fill(~seen[..., None, None], 0), parents.activations.masked_fill(~seen[..., None], 0)
    )
