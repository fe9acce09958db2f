"""Requests and responses of the prediction server."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from torchcaps.errors import DataError
from torchcaps.serving.classifier import CheckedPrediction

Value = Annotated[float, Field(allow_inf_nan=False, strict=True)]
# The first wrong value is enough: a report of each would take a thousand times the memory of the body.
Row = Annotated[list[Value], Field(fail_fast=True)]
Channel = Annotated[list[Row], Field(fail_fast=True)]
Array = Annotated[list[Channel], Field(fail_fast=True)]
File = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]


class PredictRequest(BaseModel):
    """Several images: either arrays or image files.

    Attributes:
        images: Arrays [C][H][W] of the size of the network's input, with values from 0 to 1.
        files: Image files of any common format and size, in base64.
        invert: Whether to invert light and dark of files, for dark ink on white paper.

    Example:
        >>> PredictRequest(images=[[[[0.0, 1.0]]]]).count()
        1
    """

    model_config = ConfigDict(extra="forbid")

    images: Annotated[list[Array], Field(min_length=1, fail_fast=True)] | None = None
    files: Annotated[list[File], Field(min_length=1, fail_fast=True)] | None = None
    invert: bool = Field(default=False, strict=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.images is None) == (self.files is None):
            raise ValueError("expected either `images` or `files`")
        if self.images is not None and self.invert:
            raise ValueError("invert: expected files, got images")
        return self

    def count(self) -> int:
        """Return the number of images."""
        return len(self.images or self.files or ())

    def arrays(self, image_shape: tuple[int, ...]) -> list[Tensor]:
        """Return `images` as tensors.

        Args:
            image_shape: Channels, height and width that each must have.

        Shape:
            Each is [C, H, W].

        Returns:
            The images, float32.

        Raises:
            DataError: If an image has another shape, or values out of [0, 1].
        """
        found = []
        for number, image in enumerate(self.images or ()):
            try:
                tensor = torch.tensor(image, dtype=torch.float32)
            except ValueError:
                raise DataError(f"images.{number}: expected rows of equal length, got others") from None
            if tuple(tensor.shape) != image_shape:
                raise DataError(f"images.{number}: expected {list(image_shape)}, got {list(tensor.shape)}")
            if tensor.min() < 0 or tensor.max() > 1:
                got = f"{float(tensor.min()):g} to {float(tensor.max()):g}"
                raise DataError(f"images.{number}: expected values from 0 to 1, got {got} (divide by 255?)")
            found.append(tensor)
        return found

    def contents(self) -> list[bytes]:
        """Return `files` as bytes.

        Returns:
            The contents.

        Raises:
            DataError: If one is not base64.
        """
        found = []
        for number, text in enumerate(self.files or ()):
            try:
                found.append(base64.b64decode(text, validate=True))
            except (binascii.Error, ValueError):
                raise DataError(f"files.{number}: expected base64, got other characters") from None
        return found


class ImageResult(BaseModel):
    """The prediction of one image.

    Attributes:
        label: The most likely class.
        labels: The most likely classes: one, or two for a network of two digits per image.
        probability: Probability of `label`.
        probabilities: Probability of each class.
        activations: Activation of each class capsule, from 0 (absent) to 1 (present).
        rejected: Why the image is probably none of the classes; null if it is accepted, or no thresholds were fitted.
    """

    label: str
    labels: list[str]
    probability: float
    probabilities: dict[str, float]
    activations: dict[str, float]
    rejected: str | None

    @classmethod
    def of(cls, checked: CheckedPrediction) -> ImageResult:
        """Return the result of a prediction; it is trusted and not validated again.

        Args:
            checked: The prediction.

        Returns:
            The result.
        """
        fields: dict[str, Any] = checked.prediction._asdict()
        return cls.model_construct(**{**fields, "labels": list(fields["labels"]), "rejected": checked.rejected})


class PredictResponse(BaseModel):
    """The predictions of all images of a request, in their order.

    Attributes:
        network: Name of the network.
        calibrated: Whether the probabilities are calibrated on validation images.
        predictions: One per image.

    Example:
        >>> PredictResponse(network="mnist", calibrated=True, predictions=[]).model_dump_json()
        '{"network":"mnist","calibrated":true,"predictions":[]}'
    """

    network: str
    calibrated: bool
    predictions: list[ImageResult]


class HealthResponse(BaseModel):
    """The state of the server.

    Attributes:
        status: `ok`.
        network: Name of the network.
        version: Version of torchcaps.
        waiting_images: Images that wait for a batch.
    """

    status: str
    network: str
    version: str
    waiting_images: int


class ModelResponse(BaseModel):
    """What the network takes and returns, and the limits of the server.

    Attributes:
        network: Name of the network.
        classes: Names of the classes.
        image_shape: Channels, height and width of the arrays.
        num_labels: Number of classes in each image.
        calibrated: Whether the probabilities are calibrated on validation images.
        rejects: Whether images of none of the classes are recognised.
        takes_files: Whether image files are accepted; a network of stereo pairs takes arrays only.
        max_images: Largest number of images in a request.
        max_body: Largest body in bytes.
        max_pixels: Largest number of pixels in an image file.
    """

    network: str
    classes: list[str]
    image_shape: tuple[int, ...]
    num_labels: int
    calibrated: bool
    rejects: bool
    takes_files: bool
    max_images: int
    max_body: int
    max_pixels: int
