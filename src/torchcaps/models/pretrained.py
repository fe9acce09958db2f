"""Weights that ship inside the package, each with a card that says where they come from and what they are good for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torchcaps._registry import nearest
from torchcaps.errors import CheckpointError, ConfigError, UnknownNameError

# Pairs of NAME.safetensors and NAME.toml.
FOLDER = Path(__file__).resolve().parents[1] / "pretrained"


@dataclass(frozen=True)
class Card:
    """What is known of shipped weights: the network, its data, how it was trained, how good it is and where it is not.

    `data` has the name and the options of the data set, `recipe` is the whole recipe as nested tables. `num_labels` is
    2 where two things are in an image: then both must be found. `test_accuracy` was measured with the weights as they
    are stored, on all `test_images`; `quick_accuracy` on the first `quick_images` of them; `embedded_accuracy` on the
    digits that come with torchcaps, where they are the same kind of images. `epochs` and `seconds` are those of the
    training, `parameters` include the decoder. What was trained on data for research only is `research_only`.
    """

    name: str
    weights: Path
    model: str
    options: dict[str, Any]
    image_shape: tuple[int, int, int]
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

    @property
    def about(self) -> str:
        """The network, its data and its accuracy, in a few words."""
        return f"{self.model} on {self.data['name']}, {self.test_accuracy:.2%} of the test images right"

    def check(
        self,
        model: str,
        image_shape: tuple[int, int, int] | None,
        num_classes: int | None,
        options: Mapping[str, Any],
        defaults: Mapping[str, Any],
    ) -> None:
        """Raise unless these are the weights of such a model; what is None, and options not given, are left open."""
        if model != self.model:
            raise ConfigError(
                f"pretrained: expected weights of {model}, got '{self.name}', which are those of {self.model}; "
                f"{_shipped_for(model)}"
            )
        shipped = {"image_shape": self.image_shape, "num_classes": self.num_classes, **defaults, **self.options}
        sizes = {"image_shape": image_shape and tuple(image_shape), "num_classes": num_classes}
        for name, given in {**{key: size for key, size in sizes.items() if size is not None}, **options}.items():
            if given != shipped[name]:
                raise ConfigError(
                    f"{name}: expected {shipped[name]!r} or nothing, for the weights '{self.name}' were trained so, "
                    f"got {given!r}"
                )


def list_pretrained(pattern: str = "*") -> list[str]:
    """The names of the shipped weights that match a shell pattern.

    >>> [name for name in list_pretrained() if pretrained_card(name).name != name]
    []
    """
    return sorted(file.stem for file in FOLDER.glob("*.safetensors") if fnmatchcase(file.stem, pattern))


def pretrained_card(name: str) -> Card:
    """The card of shipped weights: their network, data, licence, recipe, accuracy and limits."""
    if name not in list_pretrained():
        raise UnknownNameError(f"unknown pretrained weights '{name}'{nearest(name, list_pretrained())}")
    file = FOLDER / f"{name}.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
        for key in ("image_shape", "class_names", "limits"):
            table[key] = tuple(table[key])
        return Card(name=name, weights=FOLDER / f"{name}.safetensors", **table)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"pretrained: expected the card of '{name}', got '{file}' ({error})") from None


def card_for(model: str, name: str) -> Card:
    """The card of the weights of that name or, where those are another model's, of this one's on the data of that name.

    >>> card_for("efficient_capsnet", "mnist").name, card_for("cnn_small", "mnist").name
    ('mnist_efficient', 'mnist_cnn')
    """
    if name in list_pretrained() and pretrained_card(name).model == model:
        return pretrained_card(name)
    own = [card for card in _cards() if (card.model, card.data["name"]) == (model, name)]
    return max(own, key=lambda card: card.test_accuracy) if own else pretrained_card(name)


def _cards() -> list[Card]:
    return [pretrained_card(name) for name in list_pretrained()]


def _shipped_for(model: str) -> str:
    cards = _cards()
    own = [f"'{card.name}'" for card in cards if card.model == model]
    others = [f"'{card.name}' of {card.model}" for card in cards if card.model != model]
    return f"shipped for it: {', '.join(own)}" if own else f"shipped are {', '.join(others)}"
