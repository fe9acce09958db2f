"""Load what a training left: the run, or the model alone, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps.data import read_image, to_float
from torchcaps.errors import CheckpointError, ConfigError, ShapeError
from torchcaps.models import ImageModel, create_model, list_pretrained, load_described, pretrained_card
from torchcaps.nn import log_probabilities
from torchcaps.train.run import Run


class Prediction(NamedTuple):
    """The prediction of one image.

    Args:
        label: Name of the most likely class.
        labels: Names of the most likely classes: one, or two if the network was trained on two digits per image.
        probability: Probability of `label`.
        probabilities: Probabilities of all classes by name; calibrated if the training fitted a temperature.
        activations: Activations of the class capsules by name, from 0 (absent) to 1 (present).
    """

    label: str
    labels: tuple[str, ...]
    probability: float
    probabilities: dict[str, float]
    activations: dict[str, float]


def load_run(path: str | Path) -> Run:
    """Open a run folder.

    Args:
        path: The folder.

    Returns:
        The run: recipe, record, metrics, data, model, and `predict` for images.

    Raises:
        CheckpointError: If the folder is not a run folder.

    Example:
        >>> load_run("runs/mine").predict("photo.png").label  # doctest: +SKIP
        'cat'
    """
    return Run.open(path)


def load_model(source: str | Path) -> ImageModel:
    """Load a trained model.

    Args:
        source: A run folder, a weights file of a run, or the name of bundled weights.

    Returns:
        The model in evaluation mode.

    Raises:
        CheckpointError: If there is no such run, file or name, or it is damaged.

    Example:
        >>> load_model("mnist").num_classes
        10
    """
    path = Path(source)
    if path.is_dir():
        return Run.open(path).load_model()
    if path.suffix == ".safetensors":
        return load_described(path)
    if str(source) in list_pretrained():
        return create_model(pretrained_card(str(source)).model, pretrained=str(source))
    raise CheckpointError(
        f"source: expected a run folder, a .safetensors file or one of {', '.join(list_pretrained())}, got '{source}'"
    )


def predict_images(
    model: ImageModel, class_names: Sequence[str], images: Tensor | Sequence[str | Path], num_labels: int = 1
) -> list[Prediction]:
    """Classify images; `Run.predict` does it with the model of a run.

    Args:
        model: A classifier in evaluation mode.
        class_names: Names of its classes.
        images: Image files, which are resized to the input size of the network, or images with values in [0, 1].
        num_labels: Number of classes in each image.

    Shape:
        images: [B, C, H, W], where they are a tensor.

    Returns:
        One prediction per image.

    Raises:
        ConfigError: If the model is not a classifier.
        DataError: If a file is not an image.
        ShapeError: If a tensor has another shape than the images of the training, or is not floating-point.

    Example:
        >>> model = load_model("mnist_cnn")
        >>> predict_images(model, "0123456789", torch.zeros(2, 1, 28, 28))[0].label in "0123456789"
        True
    """
    if not model.is_classifier:
        raise ConfigError(f"model: expected a classifier, got {type(model).__name__}")
    if not isinstance(images, Tensor):
        if not images:
            return []
        images = torch.stack([to_float(read_image(file, model.image_shape)) for file in images])  # [B, C, H, W]
    if not images.is_floating_point():
        raise ShapeError(f"images: expected floating-point values in [0, 1], got {images.dtype} (divide by 255)")
    model.check_images(images)
    with torch.inference_mode():
        activations = model(images.to(next(model.parameters()))).activations  # [B, J]
    return name_predictions(activations, class_names, num_labels, model.temperature)


def name_predictions(
    activations: Tensor, class_names: Sequence[str], num_labels: int = 1, temperature: float | None = None
) -> list[Prediction]:
    """Return class activations as predictions with names and probabilities.

    Args:
        activations: Activations of the class capsules.
        class_names: Names of the classes.
        num_labels: Number of classes in each image.
        temperature: Temperature of the probabilities; None if it was not fitted.

    Shape:
        activations: [B, J].

    Returns:
        One prediction per image.

    Example:
        >>> name_predictions(torch.tensor([[0.25, 0.25]]), ["cat", "dog"])[0].probabilities
        {'cat': 0.5, 'dog': 0.5}
    """
    probabilities = log_probabilities(activations, temperature or 1.0).exp()  # [B, J]
    found = []
    for row, shares in zip(activations.tolist(), probabilities.tolist(), strict=True):
        order = sorted(range(len(row)), key=row.__getitem__, reverse=True)
        labels = tuple(class_names[place] for place in order[:num_labels])
        named = [dict(zip(class_names, values, strict=True)) for values in (shares, row)]
        found.append(Prediction(labels[0], labels, shares[order[0]], *named))
    return found
