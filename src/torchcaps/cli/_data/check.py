"""`torchcaps data check`: whether files are there, whole, and those of their authors."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.data import FileState

BROKEN = 2


def run(args: Namespace, out: Output) -> int:
    """Check the data sets that are named, or all of which something is at hand."""
    from torchcaps.data import DATASETS, check_data

    sets = {name: DATASETS[name] for name in args.words or DATASETS}
    states: dict[str, list[FileState]] = {}
    with out.progress("checking") as progress:
        for done, name in enumerate(sets):
            states[name] = check_data(name)
            progress(done + 1, len(sets))
    if not args.words:
        states = {name: files for name, files in states.items() if any(file.path for file in files)}
    out.document(
        [
            {"data": name, "file": file.name, "status": file.status, "path": file.path, "remedy": file.remedy}
            for name, files in states.items()
            for file in files
        ]
    )
    rows = [
        (name, file.name, "unverified copy" if file.status == "unverified" else file.status, _note(file))
        for name, files in states.items()
        for file in files
    ]
    if rows:
        out.table(("data", "file", "state", "where, or what to do"), rows)
    else:
        out.say("no files to check; `torchcaps data fetch NAME` gets some")
    return BROKEN if any(file.status == "broken" for files in states.values() for file in files) else 0


def _note(file: FileState) -> str:
    where = "" if file.path is None else str(file.path.parent)
    return f"{where}: {file.remedy}" if where and file.remedy else where or file.remedy
