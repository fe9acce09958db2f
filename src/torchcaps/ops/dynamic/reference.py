"""Dynamic routing by agreement as the paper states it: the definition that every fast twin is held to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._steps import ParentSoftmax, Step, check_iters, last_step, parent_softmax
from torchcaps.ops.squash import squash
from torchcaps.ops.votes import check_bias, check_votes
from torchcaps.types import Routed

GradMode = Literal["all", "last"]


def check_routing_options(iters: int, grad: str) -> None:
    """Raise unless there is at least one iteration and the gradient mode exists."""
    check_iters(iters)
    if grad not in get_args(GradMode):
        raise ConfigError(f"grad: expected one of {', '.join(get_args(GradMode))}, got '{grad}'")


def dynamic_steps(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Run procedure 1 of the paper and give each iteration as it ends; see `dynamic_routing`."""
    check_votes(votes)
    check_routing_options(iters, grad)
    if logits is None:
        logits = votes.new_zeros(votes.shape[:3])  # [B, I, J]
    elif logits.shape != votes.shape[:3]:
        raise ShapeError(f"logits: expected {tuple(votes.shape[:3])}, got {tuple(logits.shape)}")
    check_bias(bias, votes)
    for iteration in range(iters):
        coupling = softmax(logits, leaky=leaky)  # [B, I, J]
        presquash = torch.einsum("bij,bijd->bjd", coupling, votes)  # [B, J, D]
        if bias is not None:
            presquash = presquash + bias  # [B, J, D]
        poses = squash(presquash)  # [B, J, D]
        yield Step(logits, coupling, poses, torch.linalg.vector_norm(poses, dim=-1))
        if iteration < iters - 1:
            agreement = torch.einsum("bijd,bjd->bij", votes, poses)  # [B, I, J]
            # With grad="last" the earlier iterations only look for the coupling: what they add is constant.
            logits = logits + (agreement if grad == "all" else agreement.detach())  # [B, I, J]


def dynamic_routing(
    votes: Tensor,
    logits: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Let children choose the parents that agree with their votes.

    Repeat `iters` times: coupling = softmax of logits over parents; presquash_j = sum_i coupling_ij votes_ij + bias_j;
    poses = squash(presquash); logits += votes . poses (Sabour et al. 2017, procedure 1; the bias is in their released
    code). votes [B, I, J, D] give poses [B, J, D], activations [B, J] and coupling [B, I, J].

    `logits` [B, I, J] are where the routing starts, zero unless given. `leaky` adds a parent for none of the above.
    `grad` lets the gradient through all iterations, or through the last one only, as if the agreements were given.
    `softmax` says which parents a child chooses from: all J, unless a convolution gives its own (`Window.softmax`).

    >>> out = dynamic_routing(torch.randn(2, 6, 3, 4), iters=3)
    >>> out.poses.shape, torch.allclose(out.coupling.sum(-1), torch.ones(2, 6))
    (torch.Size([2, 3, 4]), True)
    """
    last = last_step(dynamic_steps(votes, logits, bias=bias, iters=iters, leaky=leaky, grad=grad, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
