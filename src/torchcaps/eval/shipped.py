"""The images that shipped weights are tested on: their own test part, and the embedded ones where these are alike."""

from __future__ import annotations

from torchcaps.data import ImageData, load_data
from torchcaps.models import Card


def shipped_data(card: Card) -> ImageData:
    """The test part of the data that the weights were trained on, as their network sees it."""
    return _seen(load_data(card.data["name"], "test", **card.data["options"]), card)


def embedded_data(card: Card) -> ImageData | None:
    """Images of the same kind that come with torchcaps and were not trained on; None where there are none."""
    name, options = card.data["name"], card.data["options"]
    if name in ("digits", "mnist"):
        return _seen(load_data("digits", "test"), card)
    if name == "multimnist":
        return _seen(load_data(name, "test", **{**options, "source": "digits"}), card)
    return None


def _seen(data: ImageData, card: Card) -> ImageData:
    return data if data.image_shape == card.image_shape else data.cropped(card.image_shape[-1])
