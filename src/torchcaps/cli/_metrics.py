"""Tables of metrics, and `torchcaps eval RUN RUN`: two runs on the same test images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchcaps.cli._output import Output
    from torchcaps.evaluation import Metrics
    from torchcaps.evaluation.intervals import Interval

# Metrics that are not shares, and are not shown in per cent.
PLAIN = ("roc_auc", "average_precision", "kappa", "mcc", "log_loss", "brier", "ece")


def print_metrics(metrics: Metrics, out: Output) -> None:
    """Print the table of all metrics, the table of the classes, and the notes."""
    from torchcaps.evaluation.metrics import NAMES

    rows = [
        (NAMES[name], _number(name, metric.value), _limits(name, metric.interval))
        for name, metric in metrics.values.items()
    ]
    out.table(("metric", "value", "95% interval"), rows)
    classes = [
        (
            row.name,
            row.support,
            row.predicted,
            *(_share(value) for value in (row.precision, row.recall, row.f1)),
            _number("roc_auc", row.roc_auc),
        )
        for row in metrics.per_class
    ]
    out.table(("class", "images", "predicted", "precision", "recall", "F1", "ROC-AUC"), classes)


def compare_runs(first: str, second: str, out: Output) -> None:
    """Print whether two runs differ on their common test images."""
    from pathlib import Path

    from torchcaps.evaluation import compare_evaluations
    from torchcaps.evaluation.metrics import NAMES
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
            _number(name, pair.first),
            _number(name, pair.second),
            _signed(name, pair.difference),
            "" if pair.interval is None else " to ".join(_signed(name, limit) for limit in pair.interval),
        )
        for name, pair in found.metrics.items()
    ]
    out.table(("metric", *names, "difference", "95% interval"), rows)
    out.say("The comparison is of these two networks; `torchcaps train RECIPE --seeds 3` measures other seeds.")


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.4f}" if name in PLAIN else f"{value:.2%}"


def _limits(name: str, interval: Interval | None) -> str:
    return "" if interval is None else " to ".join(_number(name, limit) for limit in interval)


def _signed(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+.4f}" if name in PLAIN else f"{value:+.2%}"


def _share(value: float | None) -> str:
    return "no images" if value is None else f"{value:.2%}"
