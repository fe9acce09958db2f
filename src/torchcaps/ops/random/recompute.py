"""Random routing with the coupling multiplied into the weight, without votes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._sum_votes import sum_fixed
from torchcaps.ops.random.reference import check_random_options, random_logits
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.ops.squash import squash as apply_squash
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    seed: int = 0,
    std: float = 1.0,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `random_routing`.

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
    poses = children.poses
    check_poses_and_weight(poses, weight)
    check_parent_bias(bias, weight)
    check_random_options(seed, std)
    check_squash(squash)
    logits = std * random_logits(poses.shape[1], weight.shape[-3], seed=seed).to(weight)  # [I, J]
    coupling = logits.softmax(dim=-1)  # [I, J]
    if weight.dim() == 4:
        presquash = sum_fixed(poses, weight, coupling)  # [B, J, D]
    else:
        presquash = torch.einsum("bjp,jpd->bjd", torch.einsum("bip,ij->bjp", poses, coupling), weight)  # [B, J, D]
    out = apply_squash(presquash if bias is None else presquash + bias, form=squash)  # [B, J, D]
    return Capsules(out, torch.linalg.vector_norm(out, dim=-1))
