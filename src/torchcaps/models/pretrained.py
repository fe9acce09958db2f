"""Pretrained weights, each with a model card: origin, accuracy and limitations.

Most weights are bundled with the package. Those of data for research only are files of their own, of which the package
has the card.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchcaps._cache import user_cache
from torchcaps._registry import nearest
from torchcaps.errors import CheckpointError, ConfigError, MissingPackageError, UnknownNameError

# NAME.toml of all weights, and NAME.safetensors of those that are bundled.
FOLDER = Path(__file__).resolve().parents[1] / "pretrained"
# The other weights in a clone of the project.
CLONE = FOLDER.parents[2] / "weights"
# Name of the folder of the other weights in the user's cache.
CACHE = "weights"


@dataclass(frozen=True)
class ModelCard:
    """Model card of pretrained weights.

    Args:
        name: Name of the weights.
        weights: Safetensors file; missing if the weights are not bundled and not downloaded yet.
        model: Registered name of the model.
        options: Options of the model.
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        num_labels: Labels per image; with 2, a prediction is correct if both are.
        class_names: Names of the classes.
        parameters: Number of parameters, decoder included.
        data: Name and options of the data set.
        data_licence: Licence of the data set.
        research_only: Whether the data set is for research only.
        test_accuracy: Accuracy of the stored weights on the whole test set.
        test_images: Number of test images.
        quick_accuracy: Accuracy on the first `quick_images` test images.
        quick_images: Number of images of the quick test.
        limits: Known limitations.
        seed: Seed of the training.
        epochs: Number of training epochs.
        seconds: Duration of the training.
        versions: Versions of the packages.
        machine: Processor, cores, threads, memory and system.
        recipe: The recipe, as nested tables.
        commit: Commit of the source code.
        embedded_accuracy: Accuracy on the digits bundled with torchcaps, if they are images of the same kind.
        sha256: Checksum of the file, if it is not bundled.

    Example:
        >>> pretrained_card("mnist").model
        'branched_capsnet'
    """

    name: str
    weights: Path
    model: str
    options: dict[str, Any]
    image_shape: tuple[int, ...]
    num_classes: int
    num_labels: int
    class_names: tuple[str, ...]
    parameters: int
    data: dict[str, Any]
    data_licence: str
    research_only: bool
    test_accuracy: float
    test_images: int
    quick_accuracy: float
    quick_images: int
    limits: tuple[str, ...]
    seed: int
    epochs: int
    seconds: float
    versions: dict[str, str]
    machine: dict[str, Any]
    recipe: dict[str, Any]
    commit: str | None = None
    embedded_accuracy: float | None = None
    sha256: str | None = None

    @property
    def about(self) -> str:
        """Network, data set and accuracy in one line."""
        return f"{self.model} on {self.data['name']}, test accuracy {self.test_accuracy:.2%}"

    def require_weights(self) -> Path:
        """Return the file of the weights.

        Returns:
            The path.

        Raises:
            CheckpointError: If the file is not on this machine; the message has the command that downloads it.

        Example:
            >>> pretrained_card("mnist").require_weights().name
            'mnist.safetensors'
        """
        if not self.weights.is_file():
            places = " or ".join(str(folder) for folder in weight_folders()) or "the folder TORCHCAPS_DATA/weights"
            raise CheckpointError(
                f"pretrained: expected {self.weights.name} in {places}, but it is missing (the weights '{self.name}' "
                f"are not part of the package; run `torchcaps data download {CACHE}/{self.name}`)"
            )
        return self.weights

    def check(
        self,
        model: str,
        image_shape: tuple[int, ...] | None,
        options: Mapping[str, Any],
        defaults: Mapping[str, Any],
    ) -> None:
        """Raise a ConfigError unless the weights fit a model.

        Args:
            model: Name of the model.
            image_shape: Shape of the images; None fits any.
            options: Options that are given.
            defaults: Options of the model that are not given.

        Raises:
            ConfigError: If the model, the shape or an option differs.
        """
        if model != self.model:
            raise ConfigError(
                f"pretrained: expected weights of {model}, got '{self.name}' (weights of {self.model}); "
                f"{_bundled_for(model)}"
            )
        expected = {"image_shape": self.image_shape, **defaults, **self.options}
        shape = {} if image_shape is None else {"image_shape": tuple(image_shape)}
        for name, given in {**shape, **options}.items():
            if given != expected[name]:
                raise ConfigError(
                    f"{name}: expected {expected[name]!r}, got {given!r} (the pretrained weights '{self.name}' fix it)"
                )


def list_pretrained(pattern: str = "*") -> list[str]:
    """Return the names of the pretrained weights.

    Args:
        pattern: Shell pattern that the names must match.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_pretrained("multi*")
        ['multimnist']
    """
    names = {file.stem for file in FOLDER.iterdir() if file.suffix in (".toml", ".safetensors")}
    return sorted(name for name in names if fnmatchcase(name, pattern))


def pretrained_card(name: str) -> ModelCard:
    """Return the model card of pretrained weights.

    Args:
        name: Name of the weights, see `list_pretrained`.

    Returns:
        The card: network, data, licence, recipe, accuracy and limitations.

    Raises:
        UnknownNameError: If there are no weights of this name.
        CheckpointError: If the card cannot be read.

    Example:
        >>> pretrained_card("mnist").num_classes
        10
    """
    if name not in list_pretrained():
        raise UnknownNameError(f"unknown pretrained weights '{name}'{nearest(name, list_pretrained())}")
    file = FOLDER / f"{name}.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        for key in ("image_shape", "class_names", "limits"):
            table[key] = tuple(table[key])
        return ModelCard(name=name, weights=_find(f"{name}.safetensors", "sha256" in table), **table)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"pretrained: expected a model card of '{name}', got '{file}' ({error})") from None


def weight_folders() -> list[Path]:
    """Return the folders in which weights that are not bundled are searched, in this order.

    Returns:
        Folders: of a clone of the project, of $TORCHCAPS_DATA, and of the user's cache, to which downloads go.
    """
    folders = [CLONE] if CLONE.is_dir() and FOLDER.parents[1].name == "src" else []
    if own := os.environ.get("TORCHCAPS_DATA"):
        folders.append(Path(own) / CACHE)
    # Layers and models alone know no cache: they download nothing.
    with suppress(MissingPackageError):
        folders.append(user_cache() / CACHE)
    return folders


def _find(name: str, separate: bool) -> Path:
    """Return the file of the weights, or the place that it is expected in."""
    places = [folder / name for folder in weight_folders()] if separate else []
    return next((file for file in places if file.is_file()), (places or [FOLDER / name])[-1])


def card_for(model: str, name: str) -> ModelCard:
    """Return the card of the weights of this name, or of the best weights of this model for the data of this name.

    >>> card_for("efficient_capsnet", "mnist").name, card_for("cnn_small", "mnist").name
    ('mnist_efficient', 'mnist_cnn')
    """
    if name in list_pretrained() and pretrained_card(name).model == model:
        return pretrained_card(name)
    own = [card for card in _cards() if (card.model, card.data["name"]) == (model, name)]
    return max(own, key=lambda card: card.test_accuracy) if own else pretrained_card(name)


def _cards() -> list[ModelCard]:
    return [pretrained_card(name) for name in list_pretrained()]


def _bundled_for(model: str) -> str:
    cards = _cards()
    own = [f"'{card.name}'" for card in cards if card.model == model]
    others = [f"'{card.name}' of {card.model}" for card in cards if card.model != model]
    return f"bundled for it: {', '.join(own)}" if own else f"bundled: {', '.join(others)}"
