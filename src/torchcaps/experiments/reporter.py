"""Where experiments report their progress."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torchcaps.types import Progress


class Reporter(Protocol):
    """Where an experiment reports its progress."""

    shows_progress: bool

    def announce(self, text: str) -> None:
        """Report the start of a step.

        Args:
            text: Description of the step.
        """
        ...

    def progress(self, title: str) -> AbstractContextManager[Progress]:
        """Return a progress bar.

        Args:
            title: Text beside the bar.

        Returns:
            A context manager whose value takes (done, total).
        """
        ...


class SilentReporter:
    """Reports nothing.

    Example:
        >>> reporter = SilentReporter()
    """

    shows_progress = False

    def announce(self, text: str) -> None:
        """Do nothing.

        Args:
            text: Ignored.
        """

    def progress(self, title: str) -> AbstractContextManager[Progress]:
        """Return a progress function that does nothing.

        Args:
            title: Ignored.

        Returns:
            A context manager whose value does nothing.
        """
        return nullcontext(lambda done, total: None)


SILENT = SilentReporter()
