"""`torchcaps eval RUN --protocol NAME`: evaluation by a fixed protocol."""

from __future__ import annotations

import errno
import json
import warnings
from typing import TYPE_CHECKING, Any

from torchcaps.errors import WriteError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.evaluation import ProtocolResult
    from torchcaps.train import Run


def run_protocol(run: Run, name: str, out: Output) -> None:
    """Run a protocol, print its table, and write its result and figure into the folder of the run.

    A run that is read-only keeps neither; the result is still printed.
    """
    from torchcaps.evaluation import PROTOCOLS

    protocol = PROTOCOLS[name]
    with out.progress(name) as progress:
        result = protocol(run, progress)
    written: dict[str, Any] = {}
    try:
        written = _write(run, name, result)
    except WriteError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        warnings.warn(f"{error}; the result is printed only", stacklevel=2)
    out.document({"run": run.path, **result.to_json(), "figure": written.get("figure")})
    _print(result, out)
    out.facts({"data": f"{result.data}: {result.origin}", **written})


def _write(run: Run, name: str, result: ProtocolResult) -> dict[str, Any]:
    """Write the result and its figure; return both files."""
    from torchcaps import viz
    from torchcaps._files import make_folder, write_figure, write_text

    file, figure = run.path / f"protocol-{name}.json", run.figures / f"protocol-{name}.png"
    write_text(file, json.dumps(result.to_json(), indent=2) + "\n")
    make_folder(figure.parent)
    names, accuracies = [row.name for row in result.rows], [row.accuracies for row in result.rows]
    write_figure(figure, viz.protocol(names, result.columns, accuracies, result.question, result.column_axis))
    return {"result": file, "figure": figure}


def _print(result: ProtocolResult, out: Output) -> None:
    out.say(result.question, style="bold")
    rows = [(row.name, row.count, *(f"{value:.2%}" for value in row.accuracies)) for row in result.rows]
    out.table((result.protocol, "images", *result.columns), rows)
