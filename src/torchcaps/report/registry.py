"""The registry of figures, which `torchcaps show`, the report, the help text and the reproductions read.

A figure is one module in `torchcaps.report.figures` and one entry here. The module defines `requires(context)`, the
reason why a run cannot have the figure or None, and `draw(context)`, which returns a `CaptionedFigure`. This file
imports neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.report.context import CaptionedFigure, FigureContext


@dataclass(frozen=True)
class FigureEntry:
    """One figure of the registry.

    Attributes:
        name: Name on the command line, and of the module in `torchcaps.report.figures`.
        title: Heading in a report.
        summary: What the figure shows, for the help text.
        compares_runs: Whether `draw` takes all runs as a mapping from label to context, instead of one context.
        in_report: Whether the report of a run contains the figure.
        model_specific: Whether the report omits the figure silently for models that cannot have it.
        whole_split: Whether the figure needs the evaluation of all test images.
        decodes: Whether it shows what the decoder makes of capsules.
        look_for: What to look for in it, for the report.
        shows_images: Whether it draws input of the network, which must then be images.
    """

    name: str
    title: str
    summary: str
    compares_runs: bool = False
    in_report: bool = False
    model_specific: bool = False
    whole_split: bool = False
    decodes: bool = False
    look_for: str = ""
    shows_images: bool = False

    @property
    def module(self) -> ModuleType:
        """The module that draws the figure."""
        return importlib.import_module(f"torchcaps.report.figures.{self.name}")

    def requires(self, context: FigureContext) -> str | None:
        """Return why a run cannot have this figure.

        Args:
            context: The run.

        Returns:
            The reason, or None if it can.
        """
        if self.shows_images and len(context.model.image_shape) != 3:
            return "the figure shows images"
        return self.module.requires(context)


# In the order of the report.
ENTRIES = (
    FigureEntry(
        "confusion",
        "Confusion matrix",
        "counts of labels and predictions",
        in_report=True,
        whole_split=True,
        look_for="Look for orange numbers: pairs of classes that are confused. An empty column is a class that is "
        "never predicted.",
    ),
    FigureEntry(
        "errors",
        "Worst errors",
        "wrong predictions that the network is most certain of",
        shows_images=True,
        in_report=True,
        whole_split=True,
        look_for="Look for wrong labels in the data, and for what these images have in common.",
    ),
    FigureEntry(
        "reliability",
        "Calibration",
        "accuracy at each confidence, before and after the temperature",
        in_report=True,
        whole_split=True,
        look_for="Points on the diagonal are calibrated; below it the network is too certain, above it too uncertain.",
    ),
    FigureEntry(
        "explanations",
        "Explanations",
        "pixels, samples or words that predictions rest on, by routing",
        in_report=True,
        model_specific=True,
        whole_split=True,
    ),
    FigureEntry(
        "curves",
        "Learning curves",
        "loss and accuracy over the epochs, also during training",
        in_report=True,
        look_for="A growing gap between training and validation is overfitting; two flat curves are underfitting.",
    ),
    FigureEntry(
        "reconstructions",
        "Reconstructions",
        "correct and wrong images next to their reconstructions",
        shows_images=True,
        in_report=True,
        decodes=True,
        look_for="A decoding that differs between images of one class shows what the pose of the capsule holds.",
    ),
    FigureEntry(
        "perturbations",
        "Dimensions of a class capsule",
        "decodings of a class capsule while one dimension at a time changes",
        shows_images=True,
        in_report=True,
        decodes=True,
        look_for="Look for rows in which one property changes, such as slant, width or thickness.",
    ),
    FigureEntry(
        "coupling",
        "Coupling over the routing iterations",
        "routing of one image",
        in_report=True,
        look_for="If the panels hardly differ between iterations, routing changes little in this network.",
    ),
    FigureEntry(
        "diagnostics",
        "Routing diagnostics",
        "routing statistics of every layer",
        in_report=True,
        look_for="An entropy near 1 means that coupling is uniform: routing then decides nothing.",
    ),
    FigureEntry(
        "routing_curves",
        "Routing diagnostics over the epochs",
        "the same statistics by epoch",
        in_report=True,
        look_for="Dead parents that grow in number are capsules that training loses.",
    ),
    FigureEntry(
        "transformations",
        "Transformed images",
        "shifted outputs of a transforming auto-encoder",
        shows_images=True,
        in_report=True,
        model_specific=True,
    ),
    FigureEntry(
        "phases",
        "Phases of the oscillators",
        "synchronisation of a Kuramoto network",
        shows_images=True,
        in_report=True,
        model_specific=True,
    ),
    FigureEntry("vote_plane", "Votes before and after routing", "votes for two classes, projected to a plane"),
    FigureEntry(
        "logit_change",
        "Change of the routing logits",
        "convergence of dynamic routing by iteration",
        compares_runs=True,
    ),
    FigureEntry("training_loss", "Training loss", "training loss over the epochs", compares_runs=True),
    FigureEntry(
        "affine_predictions",
        "Predictions on affine digits",
        "predictions of networks trained on translated digits",
        shows_images=True,
        compares_runs=True,
    ),
    FigureEntry(
        "picasso",
        "Parts in wrong places",
        "whole and scrambled images, and which of them networks take for a whole",
        shows_images=True,
        compares_runs=True,
    ),
    FigureEntry(
        "crowding",
        "Two digits close together",
        "what is decoded from the capsules of identical and of different digits",
        shows_images=True,
        compares_runs=True,
    ),
    FigureEntry(
        "view_angles",
        "Error over the angle to a trained view",
        "errors on new viewpoints by their angle to the nearest trained one",
        compares_runs=True,
    ),
    FigureEntry(
        "binding",
        "Division of overlapping shapes",
        "the two groups into which networks divide the pixels of two shapes",
        shows_images=True,
        compares_runs=True,
    ),
    FigureEntry("attacks", "Adversarial attacks", "accuracy under attacks of increasing strength", compares_runs=True),
)

FIGURES: Registry[FigureEntry] = Registry("figure")
for _entry in ENTRIES:
    FIGURES.add(_entry.name, _entry)


def draw_figure(name: str, runs: Mapping[str, FigureContext]) -> CaptionedFigure:
    """Draw a figure of the registry.

    A figure of a single run is drawn from the first run that can have it, a figure that compares runs from all that
    can.

    Args:
        name: Name in `FIGURES`.
        runs: Contexts of the runs by label.

    Returns:
        The figure with its caption and alt text.

    Raises:
        UnknownNameError: If there is no figure of this name.
        ConfigError: If no run can have the figure.

    Example:
        >>> FIGURES.names("*curves")
        ['curves', 'routing_curves']
    """
    entry = FIGURES[name]
    reasons = {label: entry.requires(context) for label, context in runs.items()}
    able = {label: context for label, context in runs.items() if reasons[label] is None}
    if not able:
        listed = ", ".join(f"'{label}' ({reason})" for label, reason in reasons.items())
        raise ConfigError(f"{name}: expected a run with this figure, got {listed or 'no runs'}")
    return entry.module.draw(able if entry.compares_runs else next(iter(able.values())))
