"""Random routing: shares that are drawn once from a seed and never change."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops._steps import ParentSoftmax, Step, last_step, parent_softmax
from torchcaps.ops.uniform.reference import given_step
from torchcaps.ops.votes import check_bias, check_votes
from torchcaps.types import Routed

# Children are drawn in blocks of this many, since the numbers that a generator gives may depend on how many are asked
# for at once: child n has the same numbers however many children there are.
_BLOCK = 256


def check_random_options(seed: int, spread: float) -> None:
    """Raise unless the seed is a count and the spread is a number of at least 0."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed: expected a whole number from 0 to below 2^63, got {seed}")
    if not 0 <= spread < float("inf"):
        raise ConfigError(f"spread: expected a finite number of at least 0, got {spread}")


def random_logits(children: int, parents: int, *, seed: int = 0) -> Tensor:
    """Normal numbers [I, J] that belong to a seed and a number of parents; the first ones do not depend on I.

    >>> torch.equal(random_logits(300, 4)[:7], random_logits(7, 4))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    # Drawn on the CPU in float32, so that every device and type gets the same.
    blocks = [
        torch.randn(_BLOCK, parents, generator=generator, dtype=torch.float32, device="cpu")
        for _ in range(0, max(children, 1), _BLOCK)
    ]
    return torch.cat(blocks)[:children]  # [I, J]


def random_steps(
    votes: Tensor,
    *,
    bias: Tensor | None = None,
    seed: int = 0,
    spread: float = 1.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Give the one iteration that there is; see `random_routing`."""
    check_votes(votes)
    check_bias(bias, votes)
    check_random_options(seed, spread)
    logits = spread * random_logits(*votes.shape[1:3], seed=seed).to(votes)  # [I, J]
    yield given_step(votes, logits.expand(votes.shape[:3]), bias, softmax)


def random_routing(
    votes: Tensor,
    *,
    bias: Tensor | None = None,
    seed: int = 0,
    spread: float = 1.0,
    softmax: ParentSoftmax = parent_softmax,
) -> Routed:
    """Share children out by lot: the control that says whether it matters who listens to whom.

    logits_ij are normal numbers of deviation `spread` that belong to `seed`, child i and parent j, the same for all
    samples and at all times; coupling = softmax of logits over parents; poses_j = squash(sum_i coupling_ij votes_ij +
    bias_j). votes [B, I, J, D] give poses [B, J, D], activations [B, J] and coupling [B, I, J].

    >>> out = random_routing(torch.randn(2, 6, 4, 8), seed=1)
    >>> torch.equal(out.coupling[0], out.coupling[1])
    True
    """
    last = last_step(random_steps(votes, bias=bias, seed=seed, spread=spread, softmax=softmax))
    return Routed(last.poses, last.activations, last.coupling)
