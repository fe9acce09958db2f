"""Masking: only one capsule, the true one or the winner, speaks to the decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.types import Capsules


def mask_capsules(capsules: Capsules, labels: Tensor | None = None) -> Tensor:
    """Keep the pose of one capsule per sample and zero the rest.

    `labels` [B] name the capsule (in training: the true class); without them the most active one is kept.
    poses [B, J, D] stay [B, J, D] (Sabour et al. 2017, section 4.1).

    >>> caps = Capsules(torch.ones(1, 3, 2), torch.tensor([[0.1, 0.9, 0.2]]))
    >>> mask_capsules(caps)[0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """
    poses, activations = capsules
    if labels is None:
        labels = activations.argmax(dim=-1)  # [B]
    if labels.shape != poses.shape[:1]:
        raise ShapeError(f"labels: expected {tuple(poses.shape[:1])}, got {tuple(labels.shape)}")
    kept = torch.nn.functional.one_hot(labels, poses.shape[1]).to(poses.dtype)  # [B, J]
    return poses * kept.unsqueeze(-1)  # [B, J, D]
