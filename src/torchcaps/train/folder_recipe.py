"""A recipe for a folder of images, chosen by looking at it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchcaps.config import dump, parse_value
from torchcaps.data.folder import MEMORY_MB, read_files, report_bad
from torchcaps.data.folder_files import ScannedFolder, scan_folder
from torchcaps.errors import ConfigError
from torchcaps.train.recipe import Recipe, full_keys, load_recipe, plain_name
from torchcaps.train.symmetry import MAX_IMAGES, MIN_IMAGES, SIDE, Symmetry, find_symmetry

RECIPE, MODEL = "folder", "backbone_capsnet"
# Steps that a network from scratch needs, for few images and for thousands, and the bounds of the number of epochs.
STEPS, MANY_STEPS, MIN_EPOCHS, MAX_EPOCHS = 2000, 3000, 15, 80
# What follows from the images if another recipe gives the network.
_STEP_KEYS = (
    "name",
    "data.options.image_size",
    "data.options.channels",
    "data.batch_size",
    "trainer.epochs",
    "trainer.checkpoint_every",
    "optim.warmup",
)
# Validation samples from which on a run may end early: with fewer, the best epoch is a matter of luck.
PATIENT = 200
# Images of this side or more are large; the numbers of training images from which on larger backbones are chosen.
LARGE, PLAIN, MANY = 96, 2_000, 5_000
# From this ratio of the largest to the smallest class on, classes are weighted.
UNBALANCED = 1.5


class Choice(NamedTuple):
    """A value of a recipe and the reason for it.

    Attributes:
        key: Dotted key of the recipe.
        value: The value.
        why: The reason.
    """

    key: str
    value: Any
    why: str


@dataclass(frozen=True)
class FolderRecipe:
    """A recipe for a folder, with what was found and chosen.

    Attributes:
        recipe: A plain recipe with every value.
        found: What is in the folder, by name.
        choices: The values that were chosen; those that the user gave are not among them.
    """

    recipe: Recipe
    found: dict[str, str]
    choices: tuple[Choice, ...]


def choose_recipe(path: str | Path, overrides: Sequence[str] = (), *, base: str = RECIPE) -> FolderRecipe:
    """Look at a folder of images and choose a recipe for it.

    Image size (up to 224), channels, backbone, batch, epochs, warm-up, augmentation, class weights and workers follow
    from the images. A value that `overrides` gives is kept. With another recipe as base, only image size, batch, epochs
    and warm-up follow from the images: a recipe for thousands of images has too few steps for hundreds.

    Args:
        path: Folder with one sub-folder per class, or with such folders for each split.
        overrides: Changes such as "optim.lr=0.01".
        base: Bundled recipe that gives all other values.

    Returns:
        The recipe, what was found, and what was chosen and why.

    Raises:
        ConfigError: If an override is wrong.
        DataError: If the folder has too few classes or images, or images are damaged.

    Example:
        >>> choose_recipe("my/images", ["trainer.epochs=5"]).recipe  # doctest: +SKIP
    """
    model = MODEL if base == RECIPE else load_recipe(base).model.name
    overrides = full_keys({"model": {"name": model}, "data": {"name": RECIPE}}, overrides)
    given = [*overrides, f"data.options.path={dump_value(str(path))}"]
    # The options of another recipe are those of its own data set.
    reset = [] if base == RECIPE else ["data.name=folder", "data.options={}"]
    # Wrong keys are reported before the images are read.
    recipe = load_recipe(base, [*reset, *given])
    options = dict(recipe.data.options)
    root = Path(path).expanduser()
    skip_bad = bool(options.get("skip_bad", False))
    fractions = {f"{split}": options.get(f"{split}_fraction", 0.1) for split in ("val", "test")}
    scanned = scan_folder(root, fractions, skip_bad=skip_bad)
    report_bad(scanned, "train", skip_bad=skip_bad)
    keys = [text.partition("=")[0].strip() for text in overrides]
    chosen = _choices(scanned, root, recipe, keys, MIN_EPOCHS if base == RECIPE else recipe.trainer.epochs)
    if base != RECIPE:
        chosen = [choice for choice in chosen if choice.key in _STEP_KEYS]
    choices = tuple(choice for choice in chosen if not is_given(choice.key, keys))
    texts = [f"{choice.key}={dump_value(choice.value)}" for choice in choices]
    return FolderRecipe(load_recipe(base, [*reset, *texts, *given]), _found(scanned), choices)


def dump_value(value: Any) -> str:
    """Return a value as the right side of an override.

    Args:
        value: A string, number, list or table.

    Returns:
        TOML on one line.

    Example:
        >>> dump_value([64, 48]), dump_value("a b")
        ('[64, 48]', '"a b"')
    """
    return dump({"x": [value]})[len("x = [") : -1]


def is_given(key: str, given: Sequence[str]) -> bool:
    """Return whether the user gave this value, a table that holds it, or a part of it."""
    if "model.name" in given and key.startswith("model."):
        return True
    return any(key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.") for other in given)


def _found(scanned: ScannedFolder) -> dict[str, str]:
    train = scanned.splits["train"]
    counts = {split: sum(map(len, files.values())) for split, files in scanned.splits.items()}
    sizes = scanned.sizes
    heights, widths = zip(*sizes, strict=True)
    span = f"{min(heights)}x{min(widths)} to {max(heights)}x{max(widths)} pixels, {len(sizes)} sizes"
    (height, width), _ = sizes.most_common(1)[0]
    depths = {shape[0] for shape in scanned.shapes.values()}
    smallest, largest = (chosen(train, key=lambda name: len(train[name])) for chosen in (min, max))
    total = f"{scanned.count:,}"
    if scanned.bad:
        total += f", and {_files(len(scanned.bad), 'bad file')} left out"
    if scanned.other:
        total += f", and {_files(scanned.other, 'file')} of other formats"
    splits = ", ".join(f"{split} {count:,}" for split, count in counts.items())
    held_out = f" ({' and '.join(scanned.held_out)} held out)" if scanned.held_out else ""
    classes = f"{len(train)}, from {len(train[smallest]):,} images for training ({smallest}) to "
    classes += f"{len(train[largest]):,} ({largest})"
    if len(train[smallest]) == len(train[largest]):
        classes = f"{len(train)}, each with {len(train[smallest]):,} images for training"
    return {
        "images": total,
        "classes": classes,
        "splits": splits + held_out,
        "sizes": span if len(sizes) > 1 else f"{height}x{width} pixels",
        "colour": {1: "grey", 3: "colour"}[max(depths)] + (" and grey" if len(depths) > 1 else ""),
    }


def _files(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' if count > 1 else ''}"


def _choices(scanned: ScannedFolder, root: Path, recipe: Recipe, own: Sequence[str], least_epochs: int) -> list[Choice]:
    options = recipe.data.options
    channels, height, width = scanned.image_shape(options.get("image_size"), options.get("channels"))
    counts = [len(files) for files in scanned.splits["train"].values()]
    train = sum(counts)
    batch = recipe.data.batch_size if "data.batch_size" in own else batch_size_for(train)
    steps = max(1, train // batch)
    epochs = recipe.trainer.epochs if "trainer.epochs" in own else epochs_for(train, steps, least_epochs)
    megabytes = scanned.count * channels * height * width / 1e6
    chosen = [
        Choice("name", plain_name(root.absolute().name), "the name of the folder"),
        *_size_choices(scanned, (channels, height, width)),
        *model_choices(train, min(height, width)),
        Choice("data.batch_size", batch, f"{train:,} images for training give {steps:,} steps per epoch"),
        Choice("trainer.epochs", epochs, f"{epochs * steps:,} steps in total"),
        *patience_choices(epochs, sum(map(len, scanned.splits["val"].values()))),
        Choice("trainer.checkpoint_every", min(100, steps), "at least one checkpoint per epoch"),
        Choice("optim.warmup", min(500, max(1, round(0.05 * epochs * steps))), "a twentieth of the steps"),
        Choice("optim.name", "adamw", "with weight decay against overfitting"),
        Choice("optim.weight_decay", 0.02, "the same"),
        Choice("optim.lr", 0.002, "for AdamW and a network from scratch"),
        *augment_choices(channels, _symmetry(scanned, channels), square=height == width),
    ]
    ratio = max(counts) / min(counts)
    if ratio >= UNBALANCED:
        why = f"the largest class has {ratio:.1f} times the images of the smallest"
        chosen.append(Choice("loss.options.weight", "balanced", why))
    if megabytes > options.get("memory_mb", MEMORY_MB):
        workers = max(1, min(4, (os.cpu_count() or 1) - 1))
        chosen.append(Choice("data.workers", workers, f"{megabytes:,.0f} MB of images stay on disk"))
    return chosen


def _size_choices(scanned: ScannedFolder, shape: tuple[int, int, int]) -> list[Choice]:
    channels, height, width = shape
    (_, count) = scanned.sizes.most_common(1)[0]
    if 2 * count > scanned.count:
        size = "the size of most images"
    else:
        size = "a square, because sizes are mixed: the median of the larger sides"
    why = f"{size}, at most 224 pixels"
    colour = "all images are grey" if channels == 1 else "there are colour images"
    return [Choice("data.options.image_size", [height, width], why), Choice("data.options.channels", channels, colour)]


def model_choices(train: int, side: int) -> list[Choice]:
    """Return the network for a number of training images of a smaller side, with reasons."""
    if side < LARGE and train >= PLAIN:
        backbone, why = "vgg7", f"plain convolutions learn fastest from {train:,} images of {side} pixels"
    else:
        backbone = "resnet10" if side >= LARGE and train >= MANY else "resnet8"
        stem = "3x3" if side < 48 else "3x3, stride 2" if side < LARGE else "7x7, stride 2, pooled"
        why = f"for {train:,} images of {side} pixels; its stem is {stem}"
    return [
        Choice("model.name", MODEL, "a capsule head on a backbone; the control is backbone_linear"),
        Choice("model.options.backbone", backbone, why),
        Choice("loss.reconstruction", 0.0, "the network has no decoder"),
    ]


def batch_size_for(train: int) -> int:
    """Return a power of two from 8 to 64 with about 25 steps per epoch where images are few."""
    return min(64, max(8, 2 ** int(math.log2(max(8, train / 24)))))


def epochs_for(train: int, steps: int, least: int = MIN_EPOCHS) -> int:
    """Return the number of epochs in which a network from scratch learns these images.

    Args:
        train: Number of training images.
        steps: Number of steps per epoch.
        least: Smallest number of epochs.

    Returns:
        The number of epochs.
    """
    return max(least, min(MAX_EPOCHS, math.ceil((MANY_STEPS if train >= PLAIN else STEPS) / steps)))


def patience_choices(epochs: int, val: int) -> list[Choice]:
    """Return the patience for a number of epochs and validation samples, with the reason; none for few samples."""
    if val < PATIENT:
        return []
    return [Choice("trainer.patience", max(10, epochs // 3), "epochs without a better validation that end the run")]


def augment_choices(channels: int, symmetry: Symmetry | None, *, square: bool) -> list[Choice]:
    """Return the augmentation of images with these channels, with reasons.

    Args:
        channels: 1 or 3.
        symmetry: Whether mirrored and turned images look like the originals; None if there are too few to tell.
        square: Whether the images are square.

    Returns:
        The choices.
    """
    chosen = [
        Choice("data.augment.shift", 0, "resized crops shift images too"),
        Choice("data.augment.resized_crop", 0.4, "windows of at least 0.6 of the area"),
        Choice("data.augment.rotate", 8.0, "degrees; small turns suit most images"),
        Choice("data.augment.erase", 0.25, "rectangles of up to a quarter of the side"),
        Choice("data.augment.brightness", 0.1, "different light"),
        Choice("data.augment.contrast", 0.2, "the same"),
        *_mirror_choices(channels, symmetry, square=square),
    ]
    if channels == 3:
        chosen += [
            Choice("data.augment.saturation", 0.2, "colour images"),
            Choice("data.augment.hue", 0.02, "colour images"),
        ]
    return chosen


def _mirror_choices(channels: int, symmetry: Symmetry | None, *, square: bool) -> list[Choice]:
    if symmetry is None:
        return [Choice("data.augment.flip", True, "colour images; false if left and right matter")] * (channels == 3)
    why = f"a test distinguishes {symmetry.mirrored:.0%} of mirrored images from their originals; 50% is chance"
    chosen = [Choice("data.augment.flip", symmetry.flips, why)]
    if symmetry.turns and square:
        why = f"images have no upper side: the test distinguishes {symmetry.turned:.0%} of turned ones"
        chosen.append(Choice("data.augment.turn", True, why))
    return chosen


def _symmetry(scanned: ScannedFolder, channels: int) -> Symmetry | None:
    files = [file for each in scanned.splits["train"].values() for file in each]
    if len(files) < MIN_IMAGES:
        return None
    order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))[:MAX_IMAGES]
    images = read_files([files[place] for place in order.tolist()], (channels, SIDE, SIDE))
    return find_symmetry(images.float() / 255)


def folder_path(overrides: Sequence[str]) -> str:
    """Return the value of `data.options.path` among overrides.

    Args:
        overrides: Changes such as "data.options.path=DIR".

    Returns:
        The path.

    Raises:
        ConfigError: If there is none.
    """
    for text in reversed(full_keys({"data": {"name": RECIPE}}, overrides)):
        key, _, value = text.partition("=")
        if key.strip() == "data.options.path":
            return str(parse_value(value.strip()))
    raise ConfigError(
        "data.options.path: expected the folder of your images, but it is not set (`torchcaps train DIR` is short)"
    )
