"""The iteration protocol of all routings: a step, the softmax over parents, and the routing that runs all steps."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, ParamSpec, Protocol

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.types import Routed

P = ParamSpec("P")

# The logit of belonging to no parent: a number, a tensor of one element, or None where every child has a parent.
Background = float | Tensor | None

# More than any routing needs. The options of a file by others decide how long a model takes, but not for ever.
MAX_ITERS = 1000


class Step(NamedTuple):
    """One iteration of a routing: the logits it starts from and the parents it computes.

    Args:
        logits: Argument of the softmax over the parents.
        coupling: Share of each child that goes to each parent.
        poses: Poses of the parents.
        activations: Activations of the parents.
        extras: Quantities of a single algorithm, by name (`variance`, `order`, ...).

    Shape:
        logits and coupling: [B, I, J]; poses: [B, J, D]; activations: [B, J].
    """

    logits: Tensor  # [B, I, J]
    coupling: Tensor  # [B, I, J]
    poses: Tensor  # [B, J, D]
    activations: Tensor  # [B, J]
    extras: dict[str, Tensor] = {}  # noqa: RUF012


class Steps(Protocol):
    """A reference: a generator function of the votes that yields one Step per iteration."""

    def __call__(self, votes: Tensor, /, *args: Any, **params: Any) -> Iterator[Step]: ...


class ParentSoftmax(Protocol):
    """A function from logits [B, I, J] to coupling, over the parents that compete for a child."""

    def __call__(self, logits: Tensor, /, *, background: Background = None) -> Tensor: ...


def check_iters(iters: int) -> None:
    """Raise ConfigError unless `iters` is from 1 to `MAX_ITERS`."""
    if not 1 <= iters <= MAX_ITERS:
        raise ConfigError(f"iters: expected a count from 1 to {MAX_ITERS:,}, got {iters}")


def parent_softmax(logits: Tensor, *, background: Background = None) -> Tensor:
    """Compute the coupling as the softmax of the logits over the parents.

    coupling_ij = e^logits_ij / (e^background + sum_j e^logits_ij).

    Args:
        logits: Routing logits.
        background: Logit of belonging to no parent. Without it the coupling of a child sums to 1.

    Shape:
        logits: [B, I, J]; returns [B, I, J].

    Returns:
        The coupling. It sums to 1 over the parents, or to less with a background.

    Example:
        >>> parent_softmax(torch.zeros(1, 1, 4)).tolist()
        [[[0.25, 0.25, 0.25, 0.25]]]
    """
    if background is None:
        return logits.softmax(dim=-1)  # [B, I, J]
    none = logits.new_ones(*logits.shape[:-1], 1) * background  # [B, I, 1]
    return torch.cat([logits, none], dim=-1).softmax(dim=-1)[..., :-1]  # [B, I, J]


def uniform_coupling(softmax: ParentSoftmax) -> ParentSoftmax:
    """Replace the logits of a softmax by zero: every parent that competes for a child gets the same share."""

    def uniform(logits: Tensor, /, **options: Any) -> Tensor:
        return softmax(torch.zeros_like(logits), **options)

    return uniform


def last_step(steps: Iterator[Step]) -> Step:
    """Run all iterations and return the last step.

    Args:
        steps: Iterations of a reference.

    Returns:
        The last one.

    Example:
        >>> import torch
        >>> from torchcaps import ops
        >>> last_step(ops.ROUTINGS["dynamic"].steps(torch.randn(2, 6, 3, 4), iters=3)).poses.shape
        torch.Size([2, 3, 4])
    """
    last = next(steps)
    for step in steps:
        last = step
    return last


def routing_of(steps: Callable[P, Iterator[Step]]) -> Callable[P, Routed]:
    """Make the routing function of a reference: the same arguments, the parents of the last iteration as result.

    The docstring is that of `steps`, with a `Returns:` section in place of `Yields:`.

    Args:
        steps: The reference, a generator of steps.

    Shape:
        The returned function takes votes [B, I, J, D] and returns poses [B, J, D].

    Returns:
        The routing function.

    Example:
        >>> my_routing = routing_of(my_steps)  # doctest: +SKIP
    """

    @functools.wraps(steps)
    def routing(*args: P.args, **params: P.kwargs) -> Routed:
        last = last_step(steps(*args, **params))
        return Routed(last.poses, last.activations, last.coupling)

    routing.__name__ = steps.__name__.removesuffix("_steps") + "_routing"
    if steps.__name__.endswith("_routing_steps"):
        routing.__name__ = steps.__name__.removesuffix("_steps")
    routing.__qualname__ = routing.__name__
    returns = "Returns:\n    The parents and the coupling of the last iteration.\n"
    routing.__doc__ = re.sub(r"Yields:\n(?:    .*\n)+", returns, inspect.getdoc(steps) or "")
    # `wraps` would show the generator's return type.
    vars(routing)["__signature__"] = inspect.signature(steps).replace(return_annotation="Routed")
    del vars(routing)["__wrapped__"]
    return routing
