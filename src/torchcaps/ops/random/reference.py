"""Random routing: a coupling that is drawn once from a seed and never changes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops._iterations import ParentSoftmax, Step, parent_softmax, routing_of
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.uniform.reference import fixed_step
from torchcaps.ops.votes import check_votes

# A generator's numbers may depend on how many are drawn at once. Blocks of this many children make the numbers of a
# child independent of the number of children.
_BLOCK = 256


def check_random_options(seed: int, std: float) -> None:
    """Raise ConfigError unless the seed is a whole number and the standard deviation a finite one, both at least 0."""
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed: expected a whole number from 0 to below 2^63, got {seed}")
    if not 0 <= std < float("inf"):
        raise ConfigError(f"std: expected a finite number of at least 0, got {std}")


def random_logits(children: int, parents: int, *, seed: int = 0) -> Tensor:
    """Draw standard normal logits that depend on the seed and the number of parents only.

    Args:
        children: Number of children I. The logits of the first children do not depend on it.
        parents: Number of parents J.
        seed: Seed of the generator.

    Shape:
        Returns [I, J].

    Returns:
        The logits, on the CPU in float32.

    Example:
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
    std: float = 1.0,
    squash: SquashForm = "standard",
    softmax: ParentSoftmax = parent_softmax,
) -> Iterator[Step]:
    """Couple children and parents at random: the control that shows whether it matters which parents a child has.

    logits_ij are normal numbers that depend on the seed, the child and the parent, and are the same for all samples;
    coupling = softmax of the logits over the parents; poses_j = squash(sum_i coupling_ij votes_ij + bias_j).

    Args:
        votes: Predictions of every child for every parent.
        bias: Vector added to each parent before it is squashed.
        seed: Seed of the logits.
        std: Standard deviation of the logits. With 0 the coupling is uniform.
        squash: Form of the squash; see `ops.squash`.
        softmax: Softmax over the parents that compete for a child: all J, or those of a `Window`.

    Shape:
        votes: [B, I, J, D]; bias: [J, D]; poses [B, J, D], activations [B, J], coupling [B, I, J].

    Yields:
        One step.

    Raises:
        ShapeError: If the shapes do not fit.
        ConfigError: If an option is out of range.

    Example:
        >>> out = random_routing(torch.randn(2, 6, 4, 8), seed=1)
        >>> torch.equal(out.coupling[0], out.coupling[1])
        True
    """
    check_votes(votes)
    check_random_options(seed, std)
    logits = std * random_logits(*votes.shape[1:3], seed=seed).to(votes)  # [I, J]
    yield fixed_step(votes, logits.expand(votes.shape[:3]), bias, squash, softmax)


random_routing = routing_of(random_steps)
