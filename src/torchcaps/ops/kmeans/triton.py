"""The Triton kernel of k-means routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from torchcaps.ops._triton.attend import attend
from torchcaps.ops._triton.layer import Layer
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


def route(layer: Layer, *, iters: int = 3, inverse_temp: float = 1.0, squash: SquashForm = "half") -> Capsules:
    """Route a dense or convolutional layer; see `kmeans_routing`.

    Args:
        layer: Children and weight.
        iters: Number of routing iterations.
        inverse_temp: Factor on the logits.
        squash: Form of the squash.

    Shape:
        returns poses [B, positions, J, D], activations [B, positions, J].

    Returns:
        The parents.
    """
    check_kmeans_options(iters, inverse_temp, squash)
    total = attend(layer)  # [B, positions, J, D]
    for _ in range(iters - 1):
        total = attend(layer, inverse_temp * F.normalize(total, dim=-1))  # [B, positions, J, D]
    poses = apply_squash(total, form=squash)  # [B, positions, J, D]
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
