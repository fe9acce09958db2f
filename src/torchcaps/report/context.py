"""The run that a figure is drawn from, and the drawn figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchcaps.data import ImageDataset, to_float
from torchcaps.diagnostics import Snapshot, diagnose
from torchcaps.evaluation import Evaluation, evaluate
from torchcaps.models import ImageModel
from torchcaps.types import Progress
from torchcaps.viz import Figure

if TYPE_CHECKING:
    from torchcaps.train import Recipe, Run

# Number of images whose reconstructions are compared with their mean image.
DECODED = 256


class CaptionedFigure(NamedTuple):
    """A figure with its caption and a description in words.

    Args:
        figure: The figure.
        caption: Caption.
        alt: Description for readers who cannot see it.
    """

    figure: Figure
    caption: str
    alt: str


class FigureContext:
    """A run as figures use it: model, data and evaluation are loaded when first used, once for all figures.

    Args:
        run: The run.
        limit: Number of test images to evaluate, from the first on; None for all.
        evaluation: Evaluation to use instead of a new one.
        diagnosis: Routing diagnostics to use instead of new ones.
        progress: Called with the numbers of evaluated and of all images.

    Example:
        >>> from torchcaps.train import Run
        >>> FigureContext(Run.open("runs/NAME"))  # doctest: +SKIP
    """

    def __init__(
        self,
        run: Run,
        *,
        limit: int | None = None,
        evaluation: Evaluation | None = None,
        diagnosis: Snapshot | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.run = run
        self._limit = limit
        self._evaluation = evaluation
        self._diagnosis = diagnosis
        self._progress = progress

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return self.run.recipe

    @cached_property
    def metrics(self) -> Mapping[str, Sequence[float]]:
        """The metrics of every epoch, as `Run.metrics` returns them."""
        return self.run.metrics()

    @cached_property
    def history(self) -> Mapping[str, Sequence[Any]]:
        """The routing diagnostics of every epoch, as `Run.diagnostics` returns them."""
        return self.run.diagnostics()

    @cached_property
    def model(self) -> ImageModel:
        """The trained model."""
        return self.run.context.model

    @cached_property
    def test_data(self) -> ImageDataset:
        """The whole test split."""
        return self.run.context.data("test") if self._evaluation is None else self._evaluation.data

    @cached_property
    def evaluation(self) -> Evaluation:
        """The evaluation of the test split, or of its first `limit` images."""
        if self._evaluation is not None:
            return self._evaluation
        data = self.test_data
        if self._limit is None or self._limit >= len(data):
            return self.run.context.evaluate(self._progress)
        return evaluate(self.model, data.subset(range(self._limit)), progress=self._progress)

    @cached_property
    def decoder_error(self) -> float:
        """Squared error of the reconstructions of test images, as a fraction of that of their mean image."""
        data, model = self.evaluation.data, self.model
        count = min(DECODED, len(data))
        images = to_float(data.batch(range(count)).images).to(next(model.parameters()).device)  # [B, C, H, W]
        with torch.inference_mode():
            error = (model.decode(model(images)) - images).square().mean()
            spread = (images - images.mean(dim=0)).square().mean()
        return float(error / spread.clamp_min(1e-12))

    @cached_property
    def diagnosis(self) -> Snapshot:
        """The routing diagnostics of the trained model."""
        return diagnose(self.model, self.test_data) if self._diagnosis is None else self._diagnosis
