"""Output of a command: text and tables, or one JSON document."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

ACCENT = "cyan"


class Output:
    """Printer for all commands: with `as_json` only the document, otherwise only text and tables."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        from rich.console import Console

        self.as_json = as_json
        self.quiet = quiet
        # Class names and paths may contain brackets, which rich would read as markup.
        self._console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
        self._errors = Console(file=sys.stderr)
        if not self._console.is_terminal:
            # A pipe has no width: a row of a table stays on one line, where other programs find it.
            self._console.width = 1000

    def say(self, text: str = "", style: str | None = None) -> None:
        """Print a line without wrapping it, so that a path can be copied."""
        if not self.as_json:
            self._console.print(text, style=style, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table between empty lines, with numbers aligned to the right."""
        if self.as_json:
            return
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style=ACCENT)
        for place, column in enumerate(columns):
            numeric = bool(rows) and all(_is_number(row[place]) for row in rows)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(_text, row))
        self._console.print("", table, "", sep="\n")

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Print names and values, one per line."""
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            self.say(f"{name:<{width}}  {value}")

    def document(self, document: Any) -> None:
        """Print the JSON document with --json; NaN and infinity become null, because JSON has neither."""
        if self.as_json:
            print(json.dumps(_clean(document), indent=2, allow_nan=False, ensure_ascii=False, default=str))

    @property
    def shows_progress(self) -> bool:
        """Whether progress is shown: not with --json, and not with --quiet."""
        return not (self.as_json or self.quiet)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar on stderr while the context lasts; the yielded function takes (done, total)."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        silent = not (self.shows_progress and self._errors.is_terminal)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(complete_style=ACCENT, finished_style=ACCENT, pulse_style=ACCENT),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self._errors, transient=True, disable=silent) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def stdout_kept(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that redirects prints to stderr with --json, where stdout is for the document."""
        return contextlib.redirect_stdout(sys.stderr) if self.as_json else contextlib.nullcontext()


def _text(cell: Any) -> str:
    # As it is written in a recipe and on the command line.
    if isinstance(cell, bool):
        return str(cell).lower()
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.endswith("%"))


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
