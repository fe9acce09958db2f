"""Test data of the pretrained weights."""

from __future__ import annotations

from torchcaps.data import ImageDataset, load_data
from torchcaps.models import ModelCard


def pretrained_data(card: ModelCard) -> ImageDataset:
    """Return the test split of the data set that pretrained weights were trained on.

    Args:
        card: ModelCard of the weights.

    Returns:
        The images, cropped to the size of the network.

    Example:
        >>> from torchcaps import pretrained_card
        >>> pretrained_data(pretrained_card("mnist"))  # doctest: +SKIP
    """
    return _cropped(load_data(card.data["name"], "test", **card.data["options"]), card)


def embedded_data(card: ModelCard) -> ImageDataset | None:
    """Return bundled test images of the same kind as those the weights were trained on.

    Args:
        card: ModelCard of the weights.

    Returns:
        The images, cropped to the size of the network; None if the package has no such images.

    Example:
        >>> from torchcaps import pretrained_card
        >>> data = embedded_data(pretrained_card("mnist"))
        >>> data is not None and len(data)
        1000
    """
    name, options = card.data["name"], card.data["options"]
    if name in ("digits", "mnist"):
        return _cropped(load_data("digits", "test"), card)
    if name == "multimnist":
        return _cropped(load_data(name, "test", **{**options, "source": "digits"}), card)
    return None


def _cropped(data: ImageDataset, card: ModelCard) -> ImageDataset:
    return data if data.image_shape == card.image_shape else data.cropped(card.image_shape[-1])
