"""`torchcaps eval RUN --protocol NAME`: a question that is put to every network in the same way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.eval import Findings
    from torchcaps.train import Run


def run_protocol(run: Run, name: str, out: Output) -> None:
    """Run a protocol, print its table, and write its numbers and its picture into the run folder."""
    from torchcaps.eval import PROTOCOLS
    from torchcaps.viz import findings as draw

    protocol = PROTOCOLS[name]
    with out.progress(name) as progress:
        findings = protocol(run, progress)
    file, picture = run.path / f"protocol-{name}.json", run.pictures / f"protocol-{name}.png"
    file.write_text(json.dumps(findings.to_json(), indent=2) + "\n", encoding="utf-8")
    picture.parent.mkdir(exist_ok=True)
    lines = [row.accuracies for row in findings.rows]
    draw([row.name for row in findings.rows], findings.columns, lines, findings.question).savefig(picture)
    out.document({"run": run.path, **findings.to_json(), "picture": picture})
    _say(findings, out)
    out.facts({"data": f"{findings.data}: {findings.origin}", "numbers": file, "picture": picture})


def _say(findings: Findings, out: Output) -> None:
    out.say(findings.question, style="bold")
    rows = [(row.name, row.count, *(f"{value:.2%}" for value in row.accuracies)) for row in findings.rows]
    out.table((findings.protocol, "images", *findings.columns), rows)
