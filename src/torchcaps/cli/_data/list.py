"""`torchcaps data list`: every data set, and which are at hand."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def run(args: Namespace, out: Output) -> int:
    """Print a line for each data set."""
    if args.words:
        word = args.words[0]
        raise ConfigError(f"unexpected argument '{word}' after list; `torchcaps data show {word}` says more")
    from torchcaps.data import DATASETS

    entries = [
        {
            "name": name,
            "description": DATASETS[name].description,
            "source": DATASETS[name].source,
            "licence": DATASETS[name].licence,
            "options": list(DATASETS[name].options),
            "at_hand": at_hand(name),
        }
        for name in DATASETS
    ]
    out.document(entries)
    columns = ("data", "at hand", "description", "licence")
    out.table(columns, [(e["name"], e["at_hand"], e["description"], e["licence"]) for e in entries])
    return 0


def at_hand(name: str) -> str:
    """Whether its files are there: yes, no, or how many of them; always, if it needs none."""
    from torchcaps.data.check import at_hand_source, here

    source = at_hand_source(name)
    if source is None:
        return "always"
    found = {file.name for file in here(source)}
    needed = {file.name for file in source.files if not file.optional}
    if needed <= found:
        return "yes"
    return f"{len(needed & found)} of {len(needed)} files" if found else "no"
