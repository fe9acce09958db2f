"""Shared by the verbs that make several runs: progress on stderr, and the command that resumes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.cli._args import program
from torchcaps.cli._verb import STOPPED

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.types import Progress

NOTHING_FINISHED = 1


class ConsoleReporter:
    """Prints the progress of an experiment to stderr."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.shows_progress = out.shows_progress

    def announce(self, text: str) -> None:
        """Print the start of a step."""
        if self.shows_progress:
            print(text, file=sys.stderr, flush=True)

    def progress(self, title: str) -> AbstractContextManager[Progress]:
        """Return a progress bar on stderr."""
        return self._out.progress(title)


def report_stopped(words: Sequence[str], folder: Path, chosen: Path | None, out: Output) -> int:
    """Print the command that resumes a stopped experiment.

    Args:
        words: The verb and its arguments, without --out.
        folder: The folder of the experiment.
        chosen: The value of --out.
        out: The output.

    Returns:
        The exit code.
    """
    out.document({"folder": folder, "status": "stopped"})
    command = shlex.join([*words, *(["--out", str(chosen)] if chosen else [])])
    print(f"stopped; resume with: {program()} {command}", file=sys.stderr)
    return STOPPED


def exit_code(statuses: Iterable[str]) -> int:
    """Return 0 if at least one run is finished."""
    return 0 if "finished" in statuses else NOTHING_FINISHED
