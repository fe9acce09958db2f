"""`torchcaps data list`: all data sets, and which are on this machine."""

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
        raise ConfigError(f"unexpected argument '{word}' after list (`torchcaps data show {word}` shows it)")
    from torchcaps.data import DATASETS

    entries = [
        {
            "name": name,
            "description": DATASETS[name].description,
            "source": DATASETS[name].source,
            "licence": DATASETS[name].licence,
            "options": list(DATASETS[name].options),
            "local": local_files_of(name),
        }
        for name in DATASETS
    ]
    out.document(entries)
    columns = ("data", "local files", "description", "licence")
    out.table(columns, [(e["name"], e["local"], e["description"], e["licence"]) for e in entries])
    return 0


def local_files_of(name: str) -> str:
    """Return whether the files of a data set are on this machine: `all`, `none`, `m of n`, or `not needed`."""
    from torchcaps.data.verify import local_files, local_source

    source = local_source(name)
    if source is None:
        return "not needed"
    found = {file.name for file in local_files(source)}
    needed = {file.name for file in source.files if not file.optional}
    if needed <= found:
        return "all"
    return f"{len(needed & found)} of {len(needed)}" if found else "none"
