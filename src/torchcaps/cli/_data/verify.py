"""`torchcaps data verify`: compare local files with the checksums of the originals."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.data import FileState

BROKEN = 2


def run(args: Namespace, out: Output) -> int:
    """Verify the named data sets, or all that have local files."""
    from torchcaps.data import DATASETS, verify_data

    # An unknown name is an error before anything is read.
    names = list({name: DATASETS[name] for name in args.words or DATASETS})
    states: dict[str, list[FileState]] = {}
    with out.progress("verifying") as progress:
        for done, name in enumerate(names):
            states[name] = verify_data(name)
            progress(done + 1, len(names))
    if not args.words:
        states = {name: files for name, files in states.items() if any(file.path for file in files)}
    rows = [(name, file) for name, files in states.items() for file in files]
    out.document(
        [
            {"data": name, "file": file.name, "status": file.status, "path": file.path, "remedy": file.remedy}
            for name, file in rows
        ]
    )
    if rows:
        out.table(
            ("data", "file", "status", "folder, or what to do"),
            [(name, file.name, file.status, _note(file)) for name, file in rows],
        )
    else:
        out.say("no local files; `torchcaps data download NAME` downloads a data set")
    return BROKEN if any(file.status == "broken" for _, file in rows) else 0


def _note(file: FileState) -> str:
    folder = "" if file.path is None else str(file.path.parent)
    return f"{folder}: {file.remedy}" if folder and file.remedy else folder or file.remedy
