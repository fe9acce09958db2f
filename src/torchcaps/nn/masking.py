"""Masking: only one capsule, the true or the most active one, reaches the decoder."""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.nn.losses import check_class_capsules, one_hot
from torchcaps.types import Capsules


def mask_capsules(capsules: Capsules, labels: Tensor | None = None) -> Tensor:
    """Keep the pose of one capsule per sample and set the others to zero (Sabour et al. 2017, section 4.1).

    Args:
        capsules: The class capsules.
        labels: The capsule to keep, in training the true class. Default: the most active one.

    Shape:
        capsules: poses [B, J, D], activations [B, J]; labels: [B]; returns [B, J, D].

    Returns:
        The masked poses.

    Raises:
        ShapeError: If the labels do not fit the capsules.

    Example:
        >>> import torch
        >>> caps = Capsules(torch.ones(1, 3, 2), torch.tensor([[0.1, 0.9, 0.2]]))
        >>> mask_capsules(caps)[0].tolist()
        [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """
    check_class_capsules(capsules)
    poses, activations = capsules
    if labels is None:
        labels = activations.argmax(dim=-1)  # [B]
    if labels.shape != poses.shape[:1]:
        raise ShapeError(f"labels: expected {tuple(poses.shape[:1])}, got {tuple(labels.shape)}")
    return poses * one_hot(labels, poses.shape[1]).unsqueeze(-1)  # [B, J, D]
