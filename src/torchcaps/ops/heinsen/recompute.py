"""Routing of vectors in sequences as matrix products: the children are summed before they meet the weight."""

from __future__ import annotations

from torch import Tensor

from torchcaps.ops._iterations import check_iters
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops._weighted_votes import weighted_votes
from torchcaps.ops.heinsen.reference import Predictor, net_values, normalise, root_count
from torchcaps.ops.squash import SquashForm, check_squash, squashed_length
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules


@computes_wide
def dense(
    children: Capsules,
    weight: Tensor,
    *,
    predict: Tensor,
    predict_gain: Tensor,
    predict_bias: Tensor,
    score_bias: Tensor,
    beta_weight: Tensor,
    beta_bias: Tensor,
    bias: Tensor | None = None,
    iters: int = 2,
    squash: SquashForm = "standard",
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `heinsen_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        predict: Matrix from a parent to what it predicts.
        predict_gain: Gain of each parent's prediction.
        predict_bias: Offset of each parent's prediction.
        score_bias: Offset of each parent's score.
        beta_weight: Matrices from a child to its net benefit to use and its net cost to ignore.
        beta_bias: Offsets of both.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    poses, activations = children
    check_poses_and_weight(poses, weight)
    check_parent_bias(bias, weight)
    check_iters(iters)
    check_squash(squash)
    predictor = Predictor(predict, predict_gain, predict_bias, score_bias)
    predictor.check(*weight.shape[-3:])
    use, ignore = net_values(poses, beta_weight, beta_bias)  # [B, I, J]
    data = activations.unsqueeze(-1)  # [B, I, 1]
    used = data / weight.shape[-3]  # [B, I, 1]
    total = poses.new_zeros(0)
    for iteration in range(iters):
        if iteration > 0:
            used = predictor.scores(poses, total).softmax(dim=-1) * data  # [B, I, J]
        credit = use * used - ignore * (data - used)  # [B, I, J]
        # With the parents first, since the votes are summed parent by parent.
        total = weighted_votes(credit.permute(2, 0, 1).contiguous(), poses, weight)  # [B, J, D]
        total = total * root_count(activations, total)
        if bias is not None:
            total = total + credit.sum(dim=1).unsqueeze(-1) * bias
    return Capsules(normalise(total), squashed_length(total, form=squash))
