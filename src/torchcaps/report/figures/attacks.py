"""Accuracy under adversarial attacks (Hinton et al. 2018, section 6)."""

from __future__ import annotations

from collections.abc import Mapping

from torchcaps import viz
from torchcaps.evaluation import evaluate_attack
from torchcaps.evaluation.adversarial import Method
from torchcaps.report.context import CaptionedFigure, FigureContext
from torchcaps.report.requirements import needs_classifier

IMAGES = 500
ATTACKS: dict[str, tuple[Method, bool]] = {
    "FGSM": ("fgsm", False),
    "BIM, ten steps": ("bim", False),
    "FGSM, targeted": ("fgsm", True),
    "BIM, targeted": ("bim", True),
}


def requires(context: FigureContext) -> str | None:
    """Require a classifier of images with one label."""
    if (reason := needs_classifier(context)) is not None:
        return reason
    return None if context.test_data.num_labels == 1 else "the images have 2 labels"


def draw(contexts: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw the accuracy over the size of the perturbation, one panel per attack and one line per run."""
    panels: dict[str, dict[str, viz.Points]] = {title: {} for title in ATTACKS}
    for label, context in contexts.items():
        # The first images, as in the table.
        data = context.test_data.subset(range(min(IMAGES, len(context.test_data))))
        for title, (method, targeted) in ATTACKS.items():
            robustness = evaluate_attack(context.model, data, method=method, targeted=targeted)
            panels[title][label] = (robustness.epsilons, robustness.accuracy)
    return CaptionedFigure(
        viz.lines(panels, x="largest change of a pixel", y=f"accuracy on the first {IMAGES} images", scale="share"),
        "Accuracy over the largest change of a pixel, for untargeted and targeted attacks.",
        f"{len(ATTACKS)} panels of accuracy curves for {', '.join(contexts)}.",
    )
