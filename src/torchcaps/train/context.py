"""The data, the model and the test evaluation of a run, each loaded or computed at most once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.data import ImageDataset
from torchcaps.evaluation import (
    Evaluation,
    Rejection,
    evaluate,
    fit_temperature,
    load_evaluation,
    novelty_of_data,
    save_evaluation,
)
from torchcaps.models import ImageModel
from torchcaps.types import Progress

if TYPE_CHECKING:
    from torchcaps.train.own_data import OwnData
    from torchcaps.train.run import Run


class RunContext:
    """What training, test and report of one run share.

    Args:
        run: The run.
        data: Splits that have been loaded already, as stored.
        model: The model that `new_model` returns first, already initialised with the seed of the recipe.
        own: Datasets or DataLoaders of the caller, in place of the data set of the recipe.

    Example:
        >>> Run.open("runs/NAME").context.evaluate().accuracy  # doctest: +SKIP
    """

    def __init__(
        self,
        run: Run,
        data: Mapping[str, ImageDataset] | None = None,
        model: ImageModel | None = None,
        own: OwnData | None = None,
    ) -> None:
        from torchcaps.train.own_data import view_data

        self.run = run
        self.own = own
        self._data = dict(data or ({} if own is None else view_data(own)))
        self._cropped: dict[str, ImageDataset] = {}
        self._fresh = model
        self._model: ImageModel | None = None
        self._evaluation: Evaluation | None = None

    def data(self, split: str, *, stored: bool = False) -> ImageDataset:
        """Return a split of the run's data.

        Args:
            split: Name of the split.
            stored: Whether to return the images as stored, not cropped to the size of the model's input.

        Returns:
            The data set.
        """
        if split not in self._data:
            self._data[split] = self.run.load_data(split, stored=True)
        if stored:
            return self._data[split]
        if split not in self._cropped:
            self._cropped[split] = self.run.crop(self._data[split])
        return self._cropped[split]

    def new_model(self) -> ImageModel:
        """Return the model with the initial weights of the recipe's seed.

        Returns:
            The model, in training mode.
        """
        from torchcaps.train.module import make_model

        model, self._fresh = self._fresh, None
        if model is None:
            torch.manual_seed(self.run.recipe.seed)
            model = make_model(self.run.recipe, self.data("train", stored=True))
        self._model = model
        return model

    def drop_model(self) -> None:
        """Forget the model that was trained: its weights are divided over processes that have ended."""
        self._model = None

    @property
    def model(self) -> ImageModel:
        """The trained model, in evaluation mode."""
        if self._model is None:
            self._model = self.run.load_model()
        return self._model

    def use_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Give the model the chosen weights.

        Args:
            weights: State dict of the model.
        """
        model = self._model or self._fresh or self.new_model()
        # The weights are kept in the precision of the training, the model is float32.
        self._model = model.float().to(self.device).eval()
        self._model.load_state_dict(weights)

    def fit_temperature(self) -> None:
        """Fit the temperature of the model's probabilities on the validation split.

        It stays None without a validation split, for several labels per image, and for a model that does not classify.
        """
        data, self.model.temperature = self.data("val"), None
        if len(data) and data.num_labels == 1 and self.model.is_classifier:
            found = evaluate(self.model, data, batch_size=self.run.recipe.data.batch_size)
            if found.activations.isfinite().all():
                self.model.temperature = fit_temperature(found.activations, found.labels)

    def fit_rejection(self) -> Rejection | None:
        """Choose the thresholds above which an image belongs to none of the classes, on the validation split.

        Returns:
            The thresholds; None where no temperature is fitted.
        """
        if self.model.temperature is None:
            return None
        scores = novelty_of_data(self.model, self.data("val"), batch_size=self.run.recipe.data.batch_size)
        # A decoder that was not trained tells nothing of an image.
        if not self.run.recipe.loss.reconstruction:
            scores.pop("reconstruction", None)
        return Rejection.fit(scores) if all(score.isfinite().all() for score in scores.values()) else None

    @property
    def device(self) -> torch.device:
        """The device of the recipe's accelerator."""
        name = self.run.recipe.trainer.accelerator
        found = torch.accelerator.current_accelerator() if name == "auto" else torch.device(name)
        return torch.device("cpu") if found is None else found

    def evaluate(self, progress: Progress | None = None) -> Evaluation:
        """Return the evaluation of the trained model on the test split.

        It is read from the run folder if it is there and belongs to the weights; else it is computed and stored.

        Args:
            progress: Called with (done, total) after each batch, if there is something to compute.

        Returns:
            The evaluation.
        """
        if self._evaluation is None:
            run, data = self.run, self.data("test")
            finished = run.weights.exists()
            evaluation = load_evaluation(run.path, data, weights=run.weights) if finished else None
            if evaluation is None:
                evaluation = evaluate(self.model, data, batch_size=run.recipe.data.batch_size, progress=progress)
                # In a folder that cannot be written to, the evaluation is computed again next time.
                with suppress(OSError):
                    if finished:
                        save_evaluation(evaluation, run.path, weights=run.weights)
            self._evaluation = evaluation
        return self._evaluation

    def results(self) -> dict[str, Any]:
        """Return the test results for run.json.

        Returns:
            Accuracy, number of errors and of images; or the loss of a model that does not classify.
        """
        evaluation = self.evaluate()
        if evaluation.loss is not None:
            return {"test_loss": evaluation.loss, "test_images": evaluation.count}
        correct = int(evaluation.correct.sum())
        return {
            "test_accuracy": correct / evaluation.count,
            "test_errors": evaluation.count - correct,
            "test_images": evaluation.count,
        }
