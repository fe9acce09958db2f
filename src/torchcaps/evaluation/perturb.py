"""Perturb a class capsule along each of its dimensions and decode the result."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import ShapeError
from torchcaps.models import ImageModel
from torchcaps.types import Capsules

# -0.25 to 0.25 in steps of 0.05, as in Sabour et al. 2017, section 5.1.
OFFSETS = tuple(round(0.05 * step, 2) for step in range(-5, 6))


@torch.inference_mode()
def perturb(
    model: ImageModel, capsules: Capsules, label: int | None = None, offsets: Sequence[float] = OFFSETS
) -> Tensor:
    """Decode the class capsule of one sample with each dimension moved by each offset.

    image[d, n] = decode(pose + offsets[n] * e_d) (Sabour et al. 2017, fig. 4).

    Args:
        model: A network with a decoder.
        capsules: Class capsules of one sample.
        label: Class whose capsule is perturbed; by default the most active one.
        offsets: The N offsets.

    Shape:
        capsules: poses [1, J, D]; returns [D, N, C, H, W].

    Returns:
        The decoded images.

    Raises:
        ShapeError: If there is more than one sample or `label` is out of range.

    Example:
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> perturb(model, model(torch.rand(1, 1, 28, 28))).shape
        torch.Size([16, 11, 1, 28, 28])
    """
    poses, activations = capsules
    if poses.dim() != 3 or poses.shape[0] != 1:
        raise ShapeError(f"capsules: expected poses [1, J, D] of one sample, got {tuple(poses.shape)}")
    dims, count = poses.shape[-1], len(offsets)
    chosen = int(activations.argmax()) if label is None else label
    if not 0 <= chosen < poses.shape[1]:
        raise ShapeError(f"label: expected a class from 0 to {poses.shape[1] - 1}, got {chosen}")
    steps = torch.tensor(offsets, dtype=poses.dtype, device=poses.device)  # [N]
    directions = torch.eye(dims, dtype=poses.dtype, device=poses.device)  # [D, D]
    moved = poses.expand(dims * count, -1, -1).clone()  # [D*N, J, D]
    moved[:, chosen] += (directions[:, None] * steps[:, None]).flatten(0, 1)  # [D*N, D]
    labels = torch.full((dims * count,), chosen, device=poses.device)
    images = model.decode(Capsules(moved, activations.expand(dims * count, -1)), labels)  # [D*N, C, H, W]
    return images.unflatten(0, (dims, count))  # [D, N, C, H, W]
