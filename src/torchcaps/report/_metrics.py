"""The tables of metrics in a report."""

from __future__ import annotations

from torchcaps.evaluation import Metrics
from torchcaps.evaluation.metrics import NAMES, format_metric
from torchcaps.report._page import Section


def metric_sections(metrics: Metrics) -> list[Section]:
    """Return a section with every metric and one with every class."""
    lines = [("metric", "value", "95% interval")]
    for name, metric in metrics.values.items():
        limits = () if metric.interval is None else metric.interval
        lines.append(
            (
                NAMES[name],
                format_metric(name, metric.value),
                " to ".join(format_metric(name, limit) for limit in limits),
            )
        )
    heading = ("class", "images", "predicted", "precision", "recall", "F1", "ROC-AUC", "average precision")
    classes: list[tuple[str, ...]] = [heading]
    for row in metrics.per_class:
        shares = ("no images" if value is None else f"{value:.2%}" for value in (row.precision, row.recall, row.f1))
        ranks = (format_metric("roc_auc", value) for value in (row.roc_auc, row.average_precision))
        classes.append((row.name, f"{row.support:,}", f"{row.predicted:,}", *shares, *ranks))
    about = "Intervals state the uncertainty from the choice of the test images, not from the seed of the training."
    return [Section("Classes", "", lines=classes), Section("Metrics", about, lines=lines)]
