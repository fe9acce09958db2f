"""The run folder: recipe, record, metrics, checkpoints, weights, evaluation and figures of one run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps._files import make_folder, write_text
from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import CheckpointError, DataError
from torchcaps.models import ImageModel, ModelDescription, check_weights, load_weights
from torchcaps.train._folder import LOCK, claim_folder, lock_folder, make_or_use
from torchcaps.train._recovery import CHECKPOINTS, RECIPE, RECORD, read_recipe, read_record
from torchcaps.train._tables import read_diagnostics, read_metrics
from torchcaps.train.context import RunContext
from torchcaps.train.few import few_per_class
from torchcaps.train.recipe import OWN, Recipe, checking_options

if TYPE_CHECKING:
    from torchcaps.train.loading import Prediction
    from torchcaps.train.own_data import OwnData


@dataclass(frozen=True)
class Run:
    """A run folder.

    It holds recipe.toml (every value), run.json (`record`), metrics.csv, diagnostics.csv, checkpoints/, and after
    training weights.safetensors, evaluation.json, predictions.safetensors and figures/.

    Attributes:
        path: The folder.
        recipe: The recipe.
    """

    path: Path
    recipe: Recipe

    @classmethod
    def create(cls, recipe: Recipe, folder: str | Path | None = None) -> Run:
        """Make the folder of a new run.

        Args:
            recipe: The recipe.
            folder: A new or empty folder; by default `runs/<recipe>-<time>`.

        Returns:
            The run.

        Raises:
            CheckpointError: If the folder is not empty, or another process is creating a run in it.
        """
        run = cls(claim_folder(recipe.name) if folder is None else make_or_use(Path(folder)), recipe)
        # Under the lock: of two processes that were given the same empty folder, the second finds it taken.
        with run.locked():
            if any(entry.name != LOCK for entry in run.path.iterdir()):
                known = (run.path / RECORD).exists()
                hint = "it holds a run; resume it, or choose another folder" if known else "not empty"
                raise CheckpointError(f"folder: expected a new or empty folder, got '{run.path}' ({hint})")
            for name in (CHECKPOINTS, "figures"):
                make_folder(run.path / name)
            write_text(run.path / RECIPE, recipe.to_toml())
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open an existing run.

        If recipe.toml or run.json is missing or damaged, a warning says so and the copy in the newest usable
        checkpoint is used.

        Args:
            path: The folder.

        Returns:
            The run.

        Raises:
            CheckpointError: If the folder is not a run folder.
            ConfigError: If its recipe is damaged.
        """
        path = Path(path)
        return cls(path, read_recipe(path))

    def change(self, recipe: Recipe) -> Run:
        """Replace the recipe.

        Args:
            recipe: The new recipe.

        Returns:
            The run with the new recipe.
        """
        write_text(self.path / RECIPE, recipe.to_toml())
        return Run(self.path, recipe)

    @property
    def record(self) -> dict[str, Any]:
        """Content of run.json: status, seed, versions, commit, machine, times, results."""
        return read_record(self.path)

    def update_record(self, **values: Any) -> None:
        """Set values in run.json.

        Args:
            **values: The values by name.
        """
        try:
            record = self.record
        except CheckpointError:
            if (self.path / RECORD).exists():
                raise
            # A new run.
            record = {}
        write_text(self.path / RECORD, json.dumps({**record, **values}, indent=2) + "\n")

    @property
    def status(self) -> str:
        """One of running (or killed), stopped, failed, finished."""
        return self.record["status"]

    @property
    def results(self) -> dict[str, Any]:
        """Results of a finished run: test accuracy, best and final epoch; else empty."""
        return self.record.get("results", {})

    @property
    def data_name(self) -> str:
        """Name of the data set."""
        return self.recipe.data.name

    @property
    def data_options(self) -> Mapping[str, Any]:
        """Options of the data set."""
        return self.recipe.data.options

    @property
    def figures(self) -> Path:
        """Folder of the figures."""
        return self._folder("figures")

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self._folder(CHECKPOINTS)

    def _folder(self, name: str) -> Path:
        folder = self.path / name
        # A run folder may come from somebody else: nothing is written outside of it.
        if folder.is_symlink():
            raise CheckpointError(f"run: expected a folder, got the symbolic link '{folder}'")
        return folder

    @property
    def weights(self) -> Path:
        """File of the chosen weights; it exists once the run is finished."""
        return self.path / "weights.safetensors"

    def metrics(self) -> dict[str, list[float]]:
        """Read metrics.csv.

        Returns:
            One value per epoch in each column: epoch, step, train_loss, val_loss, val_accuracy, lr, ...

        Raises:
            CheckpointError: If the file is damaged.
        """
        return read_metrics(self.path)

    def diagnostics(self) -> dict[str, list[Any]]:
        """Read diagnostics.csv.

        Returns:
            The columns `epoch`, `layer`, `iteration` (from 1, or None), `measure` (`entropy`, `logit_change`,
            `changed`, `dead`, `starved`, `gradient_norm`, `gradient_coherence`) and `value`; empty if there is no file.

        Raises:
            CheckpointError: If the file is damaged.
        """
        return read_diagnostics(self.path)

    @cached_property
    def context(self) -> RunContext:
        """Data, model and evaluation of the run, each loaded at most once."""
        return RunContext(self)

    def use_context(
        self,
        data: Mapping[str, ImageDataset] | None = None,
        model: ImageModel | None = None,
        own: OwnData | None = None,
    ) -> None:
        """Give the run data and a new model that have been loaded already.

        Args:
            data: The splits, as stored.
            model: The model, initialised with the seed of the recipe.
            own: Datasets or DataLoaders of the caller, where the data are not those of a registered data set.
        """
        self.__dict__["context"] = RunContext(self, data, model, own)

    def load_data(self, split: str, *, stored: bool = False) -> ImageDataset:
        """Load a split of the data.

        Args:
            split: Name of the split.
            stored: Whether to return the images as stored, not cropped to the size of the model's input.

        Returns:
            The data set.

        Raises:
            DataError: If the run was trained on datasets of the caller, which are not here, or its images have
                moved.
        """
        if self.recipe.data.name == OWN:
            given = self.__dict__.get("context")
            if given is None or given.own is None:
                raise DataError(
                    f"data: expected the datasets of the run, which are not stored in '{self.path}' "
                    "(give them to tc.train.resume, or to Run.use_context)"
                )
            return given.data(split, stored=stored)
        options = self.recipe.data.options
        path = options.get("path")
        if isinstance(path, str) and not Path(path).exists():
            raise DataError(
                f"data.options.path: expected the images of the run, got '{path}', which is not there (if they have "
                f"moved: torchcaps eval {self.path} --data {self.recipe.data.name} path=NEW)"
            )
        with checking_options("data.options", options):
            data = few_per_class(load_data(self.recipe.data.name, split, **options), split, self.recipe)
        return data if stored else self.crop(data)

    def crop(self, data: ImageDataset) -> ImageDataset:
        """Crop images as stored to the size of the model's input.

        Args:
            data: The images.

        Returns:
            The centre of each image, or `data` itself if the recipe crops nothing.
        """
        size = self.recipe.data.augment.crop
        return data.cropped(size) if size else data

    def load_model(self) -> ImageModel:
        """Load the trained model, or that of the newest checkpoint with a warning if the run is not finished.

        An unfinished run gives the weights of its best epoch so far; in its first epoch, those of its last step.

        Returns:
            The model in evaluation mode.

        Raises:
            CheckpointError: If the run has neither weights nor a checkpoint, or its files are damaged.
        """
        if not self.weights.exists():
            return self._load_unfinished()
        description = self.describe_model()
        # The weights of the run hold those of the backbone: the file that it started from may be gone.
        options = {name: value for name, value in description.options.items() if name != "weights"}
        description = description._replace(options=options)
        # At first without memory: the sizes in the files may be too large for any.
        with checking_options("model.options", options), torch.device("meta"):
            model = description.create()
        check_weights(model, self.weights)
        load_weights(model.to_empty(device="cpu"), self.weights)
        return _check_finite(model).eval()

    def _load_unfinished(self) -> ImageModel:
        from torchcaps.train.checkpoint import newest_checkpoint

        status = self.record["status"]
        checkpoint = newest_checkpoint(self.checkpoints, self.recipe)
        if checkpoint is None:
            raise CheckpointError(
                f"run: expected weights or a checkpoint, found neither in '{self.path}' (status '{status}'; "
                "a checkpoint is saved at least every minute and at the end of each epoch)"
            )
        weights, which = checkpoint.model_weights()
        warnings.warn(f"run '{self.path}' is not finished (status '{status}'); using the {which}", stacklevel=3)
        # At first without memory: the sizes in the files may be too large for any.
        with checking_options("model.options", self.recipe.model.options), torch.device("meta"):
            model = self.describe_model().create()
        check_weights(model, checkpoint.path, {name: tuple(tensor.shape) for name, tensor in weights.items()})
        model.to_empty(device="cpu").load_state_dict(weights)
        return _check_finite(model).eval()

    def describe_model(self) -> ModelDescription:
        """Return what makes the model: name, options and sizes, and the names of the classes.

        Returns:
            The description, which is also stored in the weights file.

        Raises:
            CheckpointError: If run.json is damaged.
        """
        record, model = self.record, self.recipe.model
        try:
            shape = tuple(map(int, record["image_shape"]))
            classes, labels = int(record["num_classes"]), int(record.get("num_labels", 1))
            names = tuple(map(str, record.get("class_names", range(classes))))
            if len(names) != classes:
                raise ValueError(f"{len(names)} names of {classes} classes")
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            file = self.path / RECORD
            raise CheckpointError(
                f"run: expected image_shape, num_classes and class_names, got '{file}' ({error!r})"
            ) from None
        # The weights of the run hold those of the backbone: the file that it started from may be gone.
        options = {key: value for key, value in model.options.items() if key != "weights"}
        return ModelDescription(model.name, options, shape, names, labels)

    def predict(self, image: str | Path | Tensor) -> Prediction:
        """Classify one image with the trained model.

        Args:
            image: An image file of any size, or an image with values in [0, 1].

        Shape:
            image: [C, H, W], where it is a tensor.

        Returns:
            The prediction: label, probability, probabilities and activations of all classes.

        Example:
            >>> Run.open("runs/mine").predict("photo.png").label  # doctest: +SKIP
            'cat'
        """
        return self.predict_many(image.unsqueeze(0) if isinstance(image, Tensor) else [image])[0]

    def predict_many(self, images: Tensor | Sequence[str | Path]) -> list[Prediction]:
        """Classify several images with the trained model.

        Args:
            images: Image files of any size, or a batch with values in [0, 1].

        Shape:
            images: [B, C, H, W], where they are a tensor.

        Returns:
            One prediction per image.
        """
        from torchcaps.train.loading import predict_images

        record = self.record
        return predict_images(self.context.model, record["class_names"], images, record["num_labels"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes; the lock ends with the process.

        Yields:
            Nothing.

        Raises:
            CheckpointError: If another process holds the lock.
        """
        with lock_folder(self.path):
            yield


def _check_finite(model: ImageModel) -> ImageModel:
    for name, weight in model.state_dict().items():
        if not weight.isfinite().all():
            raise CheckpointError(f"weights: expected finite numbers, got NaN or infinity in '{name}'")
    return model
