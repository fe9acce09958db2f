"""Training on a given number of images of each class: how much data a network needs."""

from __future__ import annotations

from torchcaps.data import ImageDataset, choose_per_class
from torchcaps.errors import ConfigError
from torchcaps.train.recipe import Recipe


def few_per_class(data: ImageDataset, split: str, recipe: Recipe) -> ImageDataset:
    """Return a training split with the recipe's number of images per class; other splits are returned unchanged.

    Args:
        data: The images of a split.
        split: Name of the split.
        recipe: The recipe; its seed chooses the images.

    Returns:
        The split, or the chosen images of it.

    Raises:
        ConfigError: If images have two labels, or a class has fewer images.

    Example:
        >>> from torchcaps import load_data
        >>> from torchcaps.train import load_recipe
        >>> len(few_per_class(load_data("digits", "train"), "train", load_recipe("digits", ["data.per_class=20"])))
        200
    """
    count = recipe.data.per_class
    if count is None or split != "train":
        return data
    if data.num_labels != 1:
        raise ConfigError(f"data.per_class: expected images with one label, got '{data.name}'")
    return choose_per_class(data, count, recipe.seed)
