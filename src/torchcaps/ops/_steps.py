"""What all iterative routings share: a step, the softmax over parents, and how steps become a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.types import Trace


class Step(NamedTuple):
    """One iteration: the logits it started from and what followed from them."""

    logits: Tensor  # [B, I, J]
    coupling: Tensor  # [B, I, J]
    poses: Tensor  # [B, J, D]
    activations: Tensor  # [B, J]
    extras: dict[str, Tensor] = {}  # noqa: RUF012


class Steps(Protocol):
    """A routing algorithm, one Step per iteration; its first argument is the votes."""

    def __call__(self, votes: Tensor, /, *args: Any, **options: Any) -> Iterator[Step]: ...


class ParentSoftmax(Protocol):
    """What turns logits [B, I, J] into coupling: it knows which parents a child chooses from."""

    def __call__(self, logits: Tensor, /, *, leaky: bool = False) -> Tensor: ...


ROUTINGS: Registry[Steps] = Registry("routing")


def check_iters(iters: int) -> None:
    """Raise unless there is at least one iteration."""
    if iters < 1:
        raise ConfigError(f"iters: expected a count of at least 1, got {iters}")


def parent_softmax(logits: Tensor, *, leaky: bool = False) -> Tensor:
    """Softmax over the parents; leaky adds one more parent with logit 0 that takes votes out of the game.

    logits [B, I, J] give coupling [B, I, J], which sums to 1 over the parents, or to less where it leaks.
    """
    if not leaky:
        return logits.softmax(dim=-1)  # [B, I, J]
    orphans = logits.new_zeros(*logits.shape[:-1], 1)  # [B, I, 1]
    return torch.cat([logits, orphans], dim=-1).softmax(dim=-1)[..., :-1]  # [B, I, J]


def last_step(steps: Iterator[Step]) -> Step:
    """Run all iterations and keep the last."""
    last = next(steps)
    for step in steps:
        last = step
    return last


def trace(algorithm: str, votes: Tensor, *args: Any, **options: Any) -> Trace:
    """Run a routing and keep every iteration.

    `algorithm` is the name of a routing (`dynamic`, `em`, ...); what follows the votes goes to it as it is.

    >>> trace("dynamic", torch.randn(2, 6, 3, 4), iters=3).coupling.shape
    torch.Size([3, 2, 6, 3])
    """
    steps = list(ROUTINGS[algorithm](votes, *args, **options))
    logits, coupling, poses, activations, extras = zip(*steps, strict=True)
    return Trace(
        algorithm=algorithm,
        votes=votes,
        logits=torch.stack(logits),  # [R, B, I, J]
        coupling=torch.stack(coupling),  # [R, B, I, J]
        poses=torch.stack(poses),  # [R, B, J, D]
        activations=torch.stack(activations),  # [R, B, J]
        extras={name: torch.stack([extra[name] for extra in extras]) for name in extras[0]},
    )
