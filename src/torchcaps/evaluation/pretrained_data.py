"""Download of pretrained weights, and their test data."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from torchcaps.data import ImageDataset, load_data
from torchcaps.data.download import download_file
from torchcaps.models import ImageModel, ModelCard, create_model, pretrained_card
from torchcaps.models.pretrained import CACHE


def download_weights(name: str) -> Path:
    """Download pretrained weights that are not bundled to the user's cache.

    Args:
        name: Name of the weights, see `list_pretrained`.

    Returns:
        The file. Weights that are bundled or downloaded already are not downloaded again.

    Raises:
        UnknownNameError: If there are no weights of this name.
        DataError: If the file cannot be downloaded.

    Example:
        >>> download_weights("mnist").name
        'mnist.safetensors'
    """
    card = pretrained_card(name)
    if card.weights.is_file():
        return card.weights
    # The address of the project, which is written in pyproject.toml alone.
    urls = [url.split(", ", 1) for url in metadata.metadata("torchcaps").get_all("Project-URL", [])]
    releases = f"{dict(urls).get('Repository', '')}/releases"
    mirror = f"{releases}/download/v{metadata.version('torchcaps')}/"
    return download_file(card.weights.name, CACHE, mirror, sha256=card.sha256 or "", home=releases)


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


class PretrainedRun:
    """Pretrained weights with their data, for protocols: a `TrainedRun`.

    Args:
        name: Name of the weights, see `list_pretrained`.

    Raises:
        UnknownNameError: If there are no weights of this name.

    Example:
        >>> PretrainedRun("mnist_cnn").data_name
        'mnist'
    """

    def __init__(self, name: str) -> None:
        self.card = pretrained_card(name)

    @property
    def data_name(self) -> str:
        """Name of the data set."""
        return self.card.data["name"]

    @property
    def data_options(self) -> Mapping[str, Any]:
        """Options of the data set."""
        return self.card.data["options"]

    def load_model(self) -> ImageModel:
        """Return the trained network."""
        return create_model(self.card.model, pretrained=self.card.name)

    def load_data(self, split: str) -> ImageDataset:
        """Return a split as the network sees it.

        Args:
            split: `train`, `val` or `test`.

        Returns:
            The images, cropped as the network needs them.
        """
        return _cropped(load_data(self.data_name, split, **self.data_options), self.card)
