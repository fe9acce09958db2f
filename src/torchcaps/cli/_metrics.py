"""Tables of metrics, and `torchcaps eval RUN RUN`: two runs on the same test images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.evaluation import Metrics


def print_metrics(metrics: Metrics, out: Output) -> None:
    """Print the table of all metrics, the table of the classes, and the notes."""
    from torchcaps.evaluation.metrics import NAMES, format_metric

    rows = [
        (
            NAMES[name],
            format_metric(name, metric.value),
            " to ".join(format_metric(name, limit) for limit in metric.interval or ()),
        )
        for name, metric in metrics.values.items()
    ]
    out.table(("metric", "value", "95% interval"), rows)
    classes = [
        (
            row.name,
            row.support,
            row.predicted,
            *(_share(value) for value in (row.precision, row.recall, row.f1)),
            format_metric("roc_auc", row.roc_auc),
        )
        for row in metrics.per_class
    ]
    out.table(("class", "images", "predicted", "precision", "recall", "F1", "ROC-AUC"), classes)


def compare_runs(first: str, second: str, out: Output) -> None:
    """Print whether two runs differ on their common test images."""
    from pathlib import Path

    from torchcaps.evaluation import compare_evaluations
    from torchcaps.evaluation.metrics import NAMES, format_metric
    from torchcaps.train import Run

    evaluations = []
    for path in (first, second):
        with out.progress("testing") as progress:
            evaluations.append(Run.open(path).context.evaluate(progress))
    found = compare_evaluations(*evaluations)
    out.document({"first": first, "second": second, **found.to_json()})
    names = [Path(path).resolve().name for path in (first, second)]
    names = names if names[0] != names[1] else [first, second]
    out.say(found.verdict(*names), style="bold")
    rows = [
        (
            NAMES[name],
            format_metric(name, pair.first),
            format_metric(name, pair.second),
            format_metric(name, pair.difference, "+"),
            " to ".join(format_metric(name, limit, "+") for limit in pair.interval or ()),
        )
        for name, pair in found.metrics.items()
    ]
    out.table(("metric", *names, "difference", "95% interval"), rows)
    out.say("The comparison is of these two networks; networks of other seeds may differ.")


def _share(value: float | None) -> str:
    return "no images" if value is None else f"{value:.2%}"
