"""Confusion matrix of the test split."""

from __future__ import annotations

from torchcaps import viz
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_classifier

requires = needs_classifier


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw the counts of labels and predictions."""
    evaluation = context.evaluation
    names = evaluation.data.class_names
    errors = evaluation.confusion.clone().fill_diagonal_(0)
    row, column = divmod(int(errors.argmax()), len(names))
    count = int(errors.max())
    worst = f"Most frequent error: {names[row]} predicted as {names[column]} ({count} times)." if count else ""
    return CaptionedFigure(
        viz.confusion(evaluation.confusion, names),
        f"Rows are labels, columns are predictions. The shade is the fraction of the row. {worst}",
        f"Confusion matrix of {len(names)} classes: {int(evaluation.confusion.trace())} of "
        f"{int(evaluation.confusion.sum())} on the diagonal. {worst}",
    )
