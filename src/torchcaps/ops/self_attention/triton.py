"""The Triton kernel of self-attention routing: from poses and weight to parents, without storing votes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.ops._attention_pass.grid import Pairs
from torchcaps.ops._triton.attend import attend
from torchcaps.ops._triton.layer import Layer, sizes_of
from torchcaps.ops.self_attention.reference import check_prior
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.types import Capsules


def route(layer: Layer, *, prior: Tensor | None = None, squash: SquashForm = "exponential") -> Capsules:
    """Route a dense or convolutional layer; see `self_attention_routing`.

    Args:
        layer: Children and weight.
        prior: Weight of each pair of child and parent that is added to the coupling.
        squash: Form of the squash.

    Shape:
        prior: [C, J] or [1, J]; returns poses [B, positions, J, D], activations [B, positions, J].

    Returns:
        The parents.
    """
    sizes = sizes_of(layer.poses, layer.weight, layer.window)
    check_prior(prior, sizes.children, sizes.parents)
    # With competition inside of each position alone, the uniform coupling is 1/J for every child.
    total = sizes.parents * attend(layer, local=True)  # [B, positions, J, D], the sum of the votes
    key = total / math.sqrt(sizes.out_dim)  # [B, positions, J, D]
    pairs = None if prior is None else Pairs(prior=prior.expand(sizes.children, sizes.parents))
    poses = apply_squash(attend(layer, key, pairs), form=squash)  # [B, positions, J, D]
    return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
