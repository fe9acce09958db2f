"""`torchcaps eval RUN --protocol NAME`: evaluation by a fixed protocol."""

from __future__ import annotations

import errno
import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchcaps.errors import ConfigError, WriteError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.evaluation import ProtocolResult, ProtocolRow
    from torchcaps.train import Run


def run_protocol(runs: Sequence[Run], name: str, options: Mapping[str, Any], out: Output) -> None:
    """Run a protocol on one run or several, print its table, and write result and figure into the folder of each run.

    A run that is read-only keeps neither; the result is still printed.
    """
    from torchcaps.evaluation import PROTOCOLS

    protocol = PROTOCOLS[name]
    _check_options(protocol, name, options)
    documents, rows, facts = [], [], {}
    for run in runs:
        label = f"{run.path.name}: " if len(runs) > 1 else ""
        with out.progress(f"{name} of {run.path.name}" if label else name) as progress:
            result = protocol(run, progress, **options)
        written: dict[str, Any] = {}
        try:
            written = _write(run, name, result)
        except WriteError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            warnings.warn(f"{error}; the result is printed only", stacklevel=2)
        documents.append({"run": run.path, **result.to_json(), "figure": written.get("figure")})
        rows.append((label, result))
        facts |= {f"{label}{key}": value for key, value in written.items()}
    out.document(documents[0] if len(runs) == 1 else {"protocol": name, "results": documents})
    _print(rows, out)
    first = rows[0][1]
    out.facts({"data": f"{first.data}: {first.origin}", **facts})


def _check_options(protocol: Callable[..., ProtocolResult], name: str, options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(protocol).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY]
    for key in options:
        if key not in known:
            expected = f"one of {', '.join(known)}" if known else "no option"
            raise ConfigError(f"{key}: expected {expected} of the protocol {name}, got {key}={options[key]}")


def _write(run: Run, name: str, result: ProtocolResult) -> dict[str, Any]:
    """Write the result and its figure; return both files."""
    from torchcaps import viz
    from torchcaps._files import make_folder, write_figure, write_text

    file, figure = run.path / f"protocol-{name}.json", run.figures / f"protocol-{name}.png"
    write_text(file, json.dumps(result.to_json(), indent=2) + "\n")
    make_folder(figure.parent)
    write_figure(figure, viz.protocol_result(result))
    return {"result": file, "figure": figure}


def _print(results: Sequence[tuple[str, ProtocolResult]], out: Output) -> None:
    first = results[0][1]
    out.say(first.question, style="bold")
    # Other data may know other factors.
    columns = list(dict.fromkeys(column for _, result in results for column in result.columns))
    rows = []
    for label, result in results:
        for row in result.rows:
            cells = dict(zip(result.columns, _cells(row, result.is_share), strict=True))
            rows.append((f"{label}{row.name}", row.count, *(cells.get(column, "") for column in columns)))
    out.table((first.protocol, "images", *columns), rows)
    for label, result in results:
        for curve in result.curves:
            lines = [(name, *(f"{value:.2f}" for value in line)) for name, line in curve.lines.items()]
            out.table((f"{label}{curve.name}, {curve.axis}", *(f"{at:g}" for at in curve.at)), lines)
        for note in result.notes:
            out.say(f"{label}{note}")


def _cells(row: ProtocolRow, is_share: bool) -> list[str]:
    if is_share:
        return [f"{value:.2%}" for value in row.accuracies]
    limits = row.intervals or (None,) * len(row.accuracies)
    return [
        f"{value:.2f}" if limit is None else f"{value:.2f} ({limit[0]:.2f} to {limit[1]:.2f})"
        for value, limit in zip(row.accuracies, limits, strict=True)
    ]
