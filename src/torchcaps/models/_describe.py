"""The description of a model in its weights file, so that the file alone makes the model again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError

from torchcaps.errors import CheckpointError, TorchcapsError
from torchcaps.models._base import ImageModel, ImageShape
from torchcaps.models._create import create_model
from torchcaps.models._weights import check_weights, load_weights, read_metadata


class ModelDescription(NamedTuple):
    """What makes a model: its name, options and sizes, and what its outputs mean.

    Args:
        name: Registered name of the model.
        options: Options of the model.
        image_shape: Channels, height and width of the images.
        class_names: Names of the classes.
        num_labels: Labels per image; 2 for overlapping digits.

    Example:
        >>> ModelDescription("cnn_small", {}, (1, 28, 28), ("cat", "dog")).create().num_classes
        2
    """

    name: str
    options: Mapping[str, Any]
    image_shape: ImageShape
    class_names: tuple[str, ...]
    num_labels: int = 1

    def create(self) -> ImageModel:
        """Create the model, with new weights."""
        return create_model(self.name, self.image_shape, len(self.class_names), **self.options)


def read_description(path: str | Path) -> ModelDescription:
    """Read the description of a model from its weights file.

    Args:
        path: A safetensors file of a run.

    Returns:
        The description.

    Raises:
        CheckpointError: If the file cannot be read or does not describe its model.

    Example:
        >>> read_description("runs/mine/weights.safetensors").class_names  # doctest: +SKIP
        ('cat', 'dog')
    """
    try:
        table = read_metadata(path)
        if "name" not in table:
            raise ValueError("it does not describe its model; create the model and use models.load_weights")
        shape = tuple(map(int, table["image_shape"]))
        names = tuple(map(str, table["class_names"]))
        labels = int(table["num_labels"])
        if not names or not 1 <= labels <= len(names):
            raise ValueError(f"{labels} labels of {len(names)} classes")
        return ModelDescription(str(table["name"]), dict(table["options"]), shape, names, labels)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"weights: expected a weights file of a run, got '{path}' ({error})") from None


def load_described(path: str | Path) -> ImageModel:
    """Load a model from its weights file alone.

    The sizes are compared with those of the file before memory is reserved.

    Args:
        path: A safetensors file of a run.

    Returns:
        The model in evaluation mode.

    Raises:
        CheckpointError: If the file cannot be read, or does not describe the model of its weights.

    Example:
        >>> load_described("runs/mine/weights.safetensors").num_classes  # doctest: +SKIP
        2
    """
    description = read_description(path)
    try:
        with torch.device("meta"):
            model = description.create()
        check_weights(model, path)
        return load_weights(model.to_empty(device="cpu"), path).eval()
    except CheckpointError:
        raise
    except (TorchcapsError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"weights: expected the description of a model, got '{path}' ({reason})") from None
