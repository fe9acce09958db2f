"""Reliability diagram of the test split, before and after the temperature."""

from __future__ import annotations

from torchcaps import viz
from torchcaps.evaluation import reliability_bins
from torchcaps.nn import log_probabilities
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_classifier


def requires(context: FigureContext) -> str | None:
    """Require one label per image."""
    several = "probabilities need one label per image"
    return needs_classifier(context) or (None if context.test_data.num_labels == 1 else several)


def draw(context: FigureContext) -> CaptionedFigure:
    """Draw accuracy over confidence."""
    evaluation, metrics = context.evaluation, context.evaluation.metrics
    plain = reliability_bins(log_probabilities(evaluation.activations).exp(), evaluation.labels)
    error = metrics.values["ece"].value
    if evaluation.temperature is None:
        curves = {"activations, T = 1": plain}
        text = f"No temperature was fitted, as the run has no validation split. Calibration error {error:.4f}."
    else:
        fitted = reliability_bins(evaluation.probabilities, evaluation.labels)
        curves = {f"fitted, T = {evaluation.temperature:.3g}": fitted, "activations, T = 1": plain}
        before = metrics.uncalibrated["ece"]
        text = (
            f"The temperature {evaluation.temperature:.3g} was fitted on the validation split. "
            f"Calibration error (ECE): {before:.4f} before, {error:.4f} after."
        )
    return CaptionedFigure(
        viz.reliability(curves),
        f"Accuracy of the predictions of each confidence; large marks stand for many images. {text}",
        f"Reliability diagram over 15 bins. {text}",
    )
