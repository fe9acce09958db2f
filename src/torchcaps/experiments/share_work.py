"""Work through a list together with other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Protocol, TypeVar

from torchcaps.experiments.claims import Claim
from torchcaps.experiments.reporter import Reporter

T = TypeVar("T")


class Outcome(Protocol):
    """The outcome of a work item: `stopped` ends the list, `failed` has a reason."""

    @property
    def status(self) -> str:
        """State of the item."""
        ...

    @property
    def error(self) -> str | None:
        """Reason, if it failed."""
        ...


R = TypeVar("R", bound=Outcome)


def share_work(
    items: Sequence[T],
    begin: Callable[[T], R | Claim | nullcontext[None] | None],
    work: Callable[[T], R],
    *,
    wait: bool,
    pause: float,
    reporter: Reporter,
) -> Iterator[R]:
    """Work through items in order, skip those that other processes hold, and come back to them.

    Args:
        items: The items.
        begin: Returns the outcome of an item that is done, the context to work on it in, or None if it is held by
            another process.
        work: Returns the outcome of an item.
        wait: Whether to wait for the items of other processes.
        pause: Seconds between two looks at them.
        reporter: Receives the progress.

    Yields:
        One outcome per item. After a stopped one there are no more.
    """
    pending = list(items)
    while pending:
        left = []
        for item in pending:
            begun = begin(item)
            if begun is None:
                left.append(item)
                continue
            if not isinstance(begun, Claim | nullcontext):
                yield begun
                continue
            with begun as claim:
                outcome = work(item)
                if claim is not None and claim.lost:
                    left.append(item)
                    continue
                _mark(claim, outcome)
                # The claim ends after the consumer has written this outcome: later ones then include it.
                yield outcome
            if outcome.status == "stopped":
                return
        if left and not wait:
            return
        if left and len(left) == len(pending):
            time.sleep(pause)
        elif left:
            reporter.announce(f"waiting for {len(left)} run{'s' * (len(left) > 1)} of other processes")
        pending = left


def _mark(claim: Claim | None, outcome: Outcome) -> None:
    if claim is not None and outcome.status == "failed":
        claim.fail(outcome.error)
    elif claim is not None and outcome.status != "stopped":
        claim.finish()
