"""Capsule networks as an estimator of scikit-learn."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchcaps._files import make_folder
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.evaluation import fit_temperature
from torchcaps.integrations._fitting import Fitting, activations_of, read_state, seeded
from torchcaps.integrations._require import require
from torchcaps.integrations._samples import (
    ImageLayout,
    Samples,
    check_number,
    find_image_shape,
    find_range,
    make_samples,
)
from torchcaps.models import MODELS, ImageModel, create_model
from torchcaps.nn import log_probabilities

require("sklearn", "sklearn")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.utils import check_random_state  # noqa: E402
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # noqa: E402

__all__ = ["CapsNetClassifier"]

# Largest factor by which small images are enlarged, and number of held-out samples that `partial_fit` keeps.
_MAX_FACTOR, _MAX_HELD = 64, 1000


class CapsNetClassifier(ClassifierMixin, BaseEstimator):
    """A capsule network that follows the conventions of scikit-learn.

    Rows of X are images [n, C, H, W] or [n, H, W], or flat vectors [n, features]. Values are scaled so that 98 %
    of the training data lie in [0, 1]; images of 8-bit integers are divided by 255. Images that are smaller than the
    network requires are enlarged by a whole factor.

    A weighted sample counts like copies of it: an epoch draws samples in proportion to their weights. Equal samples are
    merged and sorted by a hash of their values, so that the order of the rows has no effect.

    A part of the training data is held out to fit the temperature of the probabilities (Guo et al. 2017).

    Args:
        model: Registered name of a network with classes; see `list_models`.
        image_shape: (C, H, W) or (H, W) of the images in flat vectors. Default: the smallest square.
        options: Options of the network, such as `{"routing": "kmeans"}`. The network has a decoder, trained with the
            usual reconstruction loss, only if they name one.
        epochs: Number of passes over the data in `fit`; `partial_fit` makes one.
        batch_size: Largest number of images in a batch.
        lr: Learning rate of Adam. In `fit` it falls to 0 along a cosine.
        holdout: Share of the distinct samples of each class that the temperature is fitted on; 0 for no calibration.
        folder: Folder for checkpoints, written after each epoch. A `fit` with the same parameters and data continues
            from there, and ends with the same weights as one that was not interrupted. Each fit has its own file.
        random_state: Seed, or a RandomState.

    Attributes:
        classes_: The class labels.
        network_: The network in evaluation mode; its `temperature` is the fitted one.
        loss_curve_: Mean loss of each epoch.
        n_features_in_: Number of values of a sample.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(n_class=3, return_X_y=True)
        >>> clf = CapsNetClassifier("cnn_small", epochs=2, random_state=0).fit(X[:200], y[:200])
        >>> clf.predict_proba(X[200:]).shape
        (337, 3)
    """

    classes_: np.ndarray
    network_: ImageModel
    loss_curve_: list[float]
    n_features_in_: int

    def __init__(
        self,
        model: str = "efficient_capsnet",
        *,
        image_shape: Sequence[int] | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int = 20,
        batch_size: int = 32,
        lr: float = 0.003,
        holdout: float = 0.1,
        folder: str | Path | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.image_shape = image_shape
        self.options = options
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.holdout = holdout
        self.folder = folder
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CapsNetClassifier:  # noqa: N803
        """Train a new network.

        Args:
            X: Images [n, C, H, W] or [n, H, W], or vectors [n, features].
            y: Class of each sample.
            sample_weight: Weight of each sample, at least 0. Default: 1.

        Returns:
            The estimator.

        Raises:
            ConfigError: If a parameter is out of range.
            ShapeError: If X does not hold images.
        """
        self._check_parameters()
        rows, y, weights = self._validate(X, y, sample_weight, reset=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        samples = make_samples(rows, labels, weights)
        file, state = None, None
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.folder is not None:
            file = make_folder(self.folder) / f"fit-{self._fingerprint(samples, seed)}.pt"
            state = read_state(file)
            seed = seed if state is None else state["seed"]
        self._start(X, samples, seed)
        train, held = samples.hold_out(self.holdout, np.random.default_rng(seed))
        fitting = self._fitting
        if state is not None:
            fitting.load(state)
        while len(fitting.losses) < self.epochs:
            fitting.run_epoch(train, self.epochs)
            if file is not None:
                fitting.write_state(file)
        self.loss_curve_ = fitting.losses
        # `partial_fit` continues with a constant rate.
        self._fitting = self._new_fitting(seed)
        self._calibrate(held)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> CapsNetClassifier:  # noqa: N803
        """Train on one more batch of samples, one pass with a constant learning rate.

        The first call fixes the scale of the values. A share `holdout` of the samples, chosen by a hash of their
        values, is not trained on; the temperature is fitted on the last 1000 of them.

        Args:
            X: As in `fit`.
            y: Class of each sample.
            classes: All classes; required in the first call.
            sample_weight: As in `fit`.

        Returns:
            The estimator.

        Raises:
            ConfigError: If a parameter is out of range, or classes are missing or unknown.
            ShapeError: If X does not hold images.
        """
        self._check_parameters()
        first = not hasattr(self, "network_")
        rows, y, weights = self._validate(X, y, sample_weight, reset=first)
        if first:
            if classes is None:
                raise ConfigError("classes: expected all classes in the first call of partial_fit, got None")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ConfigError(f"classes: expected those of the first call, {self.classes_}, got {np.unique(classes)}")
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if not (self.classes_[labels] == y).all():
            raise ConfigError(f"y: expected classes of {self.classes_}, got {np.setdiff1d(y, self.classes_)}")
        samples = make_samples(rows, labels, weights)
        if first:
            self._start(X, samples, int(check_random_state(self.random_state).randint(2**31 - 1)))
        train, held = samples.hold_out_by_key(self.holdout)
        if len(train.labels):
            self._fitting.run_epoch(train)
        self.loss_curve_ = [*self.loss_curve_, *self._fitting.losses[-1:]]
        parts = [held] if self._held is None else [self._held, held]
        self._calibrate(Samples(*(np.concatenate(part)[-_MAX_HELD:] for part in zip(*parts, strict=True))))
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Compute class probabilities, calibrated by the fitted temperature.

        Args:
            X: As in `fit`.

        Returns:
            Probabilities [n, classes], which sum to 1.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        activations = activations_of(self.network_, self._layout, rows)  # [n, J]
        return log_probabilities(activations, self.network_.temperature or 1.0).exp().numpy()

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict classes.

        Args:
            X: As in `fit`.

        Returns:
            The most probable class of each sample.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def _check_parameters(self) -> None:
        check_number("epochs", self.epochs, 1, 10**6, int)
        check_number("batch_size", self.batch_size, 2, 10**6, int)
        check_number("lr", self.lr, 1e-9, 10)
        check_number("holdout", self.holdout, 0, 0.9)
        if not isinstance(self.options, Mapping | None):
            raise ConfigError(f"options: expected a mapping or None, got {self.options!r}")

    def _rows(self, X: Any, reset: bool, **y: Any) -> Any:  # noqa: N803
        """Validate X, and y where it is given; images become flat rows."""
        shape = _shape_of(X)
        if len(shape) > 2:
            X = np.asarray(X).reshape(shape[0], int(np.prod(shape[1:])))  # noqa: N806
        return validate_data(self, X, **y, dtype=np.float32, reset=reset)

    def _validate(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # noqa: N803
        rows, y = self._rows(X, reset, y=y)
        check_classification_targets(y)
        weights = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        return rows, y, weights

    def _start(self, X: Any, samples: Samples, seed: int) -> None:  # noqa: N803
        """Make a new network for the shape and the range of the samples."""
        shape = find_image_shape(_shape_of(X), self.image_shape)
        low, high = (0.0, 255.0) if str(getattr(X, "dtype", "")).endswith("uint8") else find_range(samples.rows)
        self._layout = self._find_layout(ImageLayout(shape, low, high))
        with seeded(seed):
            self.network_ = self._create(self._layout, device=torch.get_default_device())
        self._fitting = self._new_fitting(seed)
        self._held: Samples | None = None
        self.loss_curve_ = []

    def _create(self, layout: ImageLayout, **place: Any) -> ImageModel:
        own = {"decoder": None} if "decoder" in inspect.signature(MODELS[self.model]).parameters else {}
        options = {**own, **(self.options or {})}
        network = create_model(self.model, layout.image_shape, len(self.classes_), **place, **options)
        if not network.is_classifier:
            raise ConfigError(f"model: expected a network with classes, got '{self.model}'")
        return network

    def _find_layout(self, layout: ImageLayout) -> ImageLayout:
        """Return the layout with the smallest factor that the network accepts."""
        for factor in range(1, _MAX_FACTOR):
            try:
                larger = layout._replace(factor=factor)
                self._create(larger, device="meta")
                return larger
            except ShapeError:
                continue
        self._create(layout)
        raise ShapeError(f"image_shape: expected images that '{self.model}' accepts, got {layout.shape}")

    def _new_fitting(self, seed: int) -> Fitting:
        return Fitting(self.network_, self._layout, lr=self.lr, batch_size=self.batch_size, seed=seed)

    def _calibrate(self, held: Samples) -> None:
        self.network_.eval()
        self._held = held
        self.network_.temperature = None
        if len(held.labels):
            activations = activations_of(self.network_, self._layout, held.rows)
            self.network_.temperature = fit_temperature(activations, torch.from_numpy(held.labels))

    def _fingerprint(self, samples: Samples, seed: int) -> str:
        """Return a hash of everything that the result of `fit` depends on."""
        parameters = {**self.get_params(), "folder": None, "random_state": self.random_state and seed}
        text = json.dumps([parameters, self.classes_.tolist()], sort_keys=True, default=repr)
        parts = (text.encode(), samples.keys.tobytes(), samples.weights.tobytes())
        return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def _shape_of(X: Any) -> tuple[int, ...]:  # noqa: N803
    # Not np.shape: an object that only converts to an array has none.
    return tuple(X.shape) if hasattr(X, "shape") else np.asarray(X).shape
