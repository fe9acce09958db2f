"""A trained network with everything that a prediction needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data import read_image, to_float
from torchcaps.errors import CheckpointError, ConfigError, DataError
from torchcaps.evaluation import Rejection, novelty
from torchcaps.models import ImageModel
from torchcaps.train import Prediction, name_predictions


class CheckedPrediction(NamedTuple):
    """A prediction, and why the image is probably none of the classes.

    Args:
        prediction: Labels, probabilities and activations.
        rejected: The reason, or None.
    """

    prediction: Prediction
    rejected: str | None


@dataclass(frozen=True)
class Classifier:
    """A network for images, and how to read its output.

    Attributes:
        name: Name of the network for people.
        model: The network, in evaluation mode.
        class_names: Names of its classes.
        num_labels: Number of classes in each image.
        rejection: Thresholds beyond which an image is none of the classes, or None.

    Raises:
        ConfigError: If the model does not classify.

    Example:
        >>> from torchcaps import load_model
        >>> digits = Classifier("mnist_cnn", load_model("mnist_cnn"), "0123456789")
        >>> digits.predict([torch.zeros(1, 28, 28)])[0].rejected is None
        True
    """

    name: str
    model: ImageModel
    class_names: Sequence[str]
    num_labels: int = 1
    rejection: Rejection | None = None

    def __post_init__(self) -> None:
        if not self.model.is_classifier:
            raise ConfigError(f"model: expected a classifier, got {type(self.model).__name__}")

    def read(self, file: bytes, *, invert: bool = False, max_pixels: int) -> Tensor:
        """Decode the content of an image file and scale it to the input of the network.

        Args:
            file: The content.
            invert: Whether to invert light and dark.
            max_pixels: Largest number of pixels.

        Shape:
            Returns [C, H, W].

        Returns:
            The image, uint8.

        Raises:
            DataError: If it is no image, or too large, or the network takes no image files.
        """
        channels = self.model.image_shape[0]
        if channels not in (1, 3):
            raise DataError(
                f"files: expected a network for 1 or 3 channels, got {channels} channels (send arrays as `images`)"
            )
        return read_image(file, self.model.image_shape, invert=invert, max_pixels=max_pixels)

    @torch.inference_mode()
    def predict(self, images: Sequence[Tensor]) -> list[CheckedPrediction]:
        """Classify images as one batch.

        Args:
            images: Images with values in [0, 1], or of type uint8.

        Shape:
            images: each [C, H, W].

        Returns:
            One prediction per image.

        Raises:
            CheckpointError: If an activation is not finite.
        """
        batch = torch.stack([to_float(image) if image.dtype == torch.uint8 else image for image in images])
        capsules = self.model(batch)  # [B, J]
        if not capsules.activations.isfinite().all():
            raise CheckpointError(f"weights: expected finite activations, got NaN or infinity ({self.name})")
        reasons: list[str | None] = [None] * len(images)
        if self.rejection is not None:
            scores = {name: values.tolist() for name, values in novelty(self.model, batch, capsules).items()}
            rows = (dict(zip(scores, values, strict=True)) for values in zip(*scores.values(), strict=True))
            reasons = [self.rejection.reason(row) for row in rows]
        named = name_predictions(capsules.activations, self.class_names, self.num_labels, self.model.temperature)
        return [CheckedPrediction(*pair) for pair in zip(named, reasons, strict=True)]
