"""`torchcaps eval RUN --protocol NAME`: evaluation by a fixed protocol."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.evaluation import ProtocolResult
    from torchcaps.train import Run


def run_protocol(run: Run, name: str, out: Output) -> None:
    """Run a protocol, print its table, and write its result and figure into the folder of the run."""
    from torchcaps import viz
    from torchcaps._files import make_folder, write_figure, write_text
    from torchcaps.evaluation import PROTOCOLS

    protocol = PROTOCOLS[name]
    with out.progress(name) as progress:
        result = protocol(run, progress)
    file, figure = run.path / f"protocol-{name}.json", run.figures / f"protocol-{name}.png"
    write_text(file, json.dumps(result.to_json(), indent=2) + "\n")
    make_folder(figure.parent)
    names, accuracies = [row.name for row in result.rows], [row.accuracies for row in result.rows]
    drawn = viz.protocol(names, result.columns, accuracies, result.question, result.column_axis)
    write_figure(figure, drawn)
    out.document({"run": run.path, **result.to_json(), "figure": figure})
    _print(result, out)
    out.facts({"data": f"{result.data}: {result.origin}", "result": file, "figure": figure})


def _print(result: ProtocolResult, out: Output) -> None:
    out.say(result.question, style="bold")
    rows = [(row.name, row.count, *(f"{value:.2%}" for value in row.accuracies)) for row in result.rows]
    out.table((result.protocol, "images", *result.columns), rows)
