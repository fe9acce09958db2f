"""What verbs share that make several runs: they are told of, can be stopped, and go on by the same command."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.cli._words import program

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

NOTHING = 1
Result = dict[str, Any]


def make_runs(
    make: Callable[[Callable[[str], None]], Result], args: Namespace, words: Sequence[str], folder: Path, out: Output
) -> Result | None:
    """What `make` gives, which is handed a way to tell how far it is; None where it was stopped.

    `words` are the verb and all that makes the same command again, but for --out.
    """

    def tell(text: str) -> None:
        if out.shows_progress:
            print(text, file=sys.stderr, flush=True)

    try:
        with out.stdout_kept():
            result = make(tell)
    except KeyboardInterrupt:
        result = {"status": "stopped"}
    if result["status"] != "stopped":
        return result
    out.document({"folder": folder, **result})
    again = shlex.join([*words, *(["--out", str(args.out)] if args.out else [])])
    print(f"stopped; the same command goes on: {program()} {again}", file=sys.stderr)
    return None


def exit_code(result: Result) -> int:
    """0 where at least one run came to its end."""
    return 0 if any(run["status"] == "finished" for row in result["rows"] for run in row["runs"]) else NOTHING
