"""A recipe for a file with signals, images or volumes, chosen by looking at it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchcaps.data.arrays import SUFFIXES, ArrayFile, scan_arrays
from torchcaps.train.folder_recipe import (
    UNBALANCED,
    Choice,
    FolderRecipe,
    augment_choices,
    batch_size_for,
    dump_value,
    epochs_for,
    is_given,
    model_choices,
    patience_choices,
)
from torchcaps.train.recipe import full_keys, load_recipe, plain_name
from torchcaps.train.symmetry import MAX_IMAGES, find_symmetry

RECIPE = "arrays"
KINDS = {1: "signals", 2: "images", 3: "volumes"}
# Model and control by rank; images have the head on a backbone of the recipe for folders.
MODELS = {1: ("capsnet_1d", "cnn_1d"), 3: ("capsnet_3d", None)}


def is_array_file(name: str | None) -> bool:
    """Return whether a name is that of a file with arrays.

    Args:
        name: Name of a recipe or of a file.

    Returns:
        Whether the name ends in `.ts`, `.npz` or `.npy`.

    Example:
        >>> is_array_file("GunPoint_TRAIN.ts"), is_array_file("digits")
        (True, False)
    """
    return name is not None and Path(name).suffix in SUFFIXES


def choose_array_recipe(path: str | Path, overrides: Sequence[str] = ()) -> FolderRecipe:
    """Look at a file with signals, images or volumes and choose a recipe for it.

    Network, batch, epochs, warm-up and class weights follow from the samples. A value that `overrides` gives is kept.

    Args:
        path: A `.ts`, `.npz` or `.npy` file; see `data.load_arrays`.
        overrides: Changes such as "optim.lr=0.01".

    Returns:
        The recipe, what was found, and what was chosen and why.

    Raises:
        ConfigError: If an override is wrong.
        DataError: If the file is damaged or has too few samples.

    Example:
        >>> choose_array_recipe("GunPoint_TRAIN.ts").recipe.model.name  # doctest: +SKIP
        'capsnet_1d'
    """
    overrides = full_keys({"model": {"name": MODELS[1][0]}, "data": {"name": RECIPE}}, overrides)
    given = [*overrides, f"data.options.path={dump_value(str(path))}"]
    # Wrong keys are reported before the samples are read.
    recipe = load_recipe(RECIPE, given)
    options: dict[str, Any] = dict(recipe.data.options)
    scanned = scan_arrays(options.pop("path"), **options)
    keys = [text.partition("=")[0].strip() for text in overrides]
    chosen = _choices(scanned, Path(path), recipe.data.batch_size if "data.batch_size" in keys else None)
    choices = tuple(choice for choice in chosen if not is_given(choice.key, keys))
    texts = [f"{choice.key}={dump_value(choice.value)}" for choice in choices]
    return FolderRecipe(load_recipe(RECIPE, [*texts, *given]), _found(scanned), choices)


def _found(scanned: ArrayFile) -> dict[str, str]:
    kind = KINDS[scanned.rank]
    values, labels = scanned.splits["train"]
    counts = torch.bincount(labels, minlength=len(scanned.class_names)).tolist()
    total = sum(len(each) for _, each in scanned.splits.values())
    splits = ", ".join(f"{split} {len(scanned.splits[split][1]):,}" for split in ("train", "val", "test"))
    held_out = f" ({' and '.join(scanned.held_out)} held out)" if scanned.held_out else ""
    size = " x ".join(map(str, values.shape[2:]))
    if scanned.lengths is not None:
        low, high = scanned.lengths
        size = f"length {high}" if low == high else f"lengths from {low} to {high}, resampled to {values.shape[2]}"
    return {
        kind: f"{total:,}",
        "classes": f"{len(counts)}, from {min(counts):,} to {max(counts):,} {kind} for training",
        "splits": splits + held_out,
        "sizes": size,
        "channels": str(values.shape[1]),
    }


def _choices(scanned: ArrayFile, path: Path, batch: int | None) -> list[Choice]:
    values, labels = scanned.splits["train"]
    counts = torch.bincount(labels, minlength=len(scanned.class_names)).tolist()
    train, kind = len(labels), KINDS[scanned.rank]
    batch = batch_size_for(train) if batch is None else batch
    steps = max(1, train // batch)
    epochs = epochs_for(train, steps)
    name = path.absolute().stem.removesuffix("_TRAIN")
    chosen = [Choice("name", plain_name(name), "the name of the file")]
    if scanned.rank == 2:
        channels, height, width = values.shape[1:]
        order = torch.randperm(train, generator=torch.Generator().manual_seed(0))[:MAX_IMAGES]
        symmetry = find_symmetry(torch.as_tensor(values[order.numpy()]).float())
        chosen += [
            *model_choices(train, min(height, width)),
            *augment_choices(channels, symmetry, square=height == width),
        ]
    else:
        model, control = MODELS[scanned.rank]
        beside = f"; the control is {control}" if control else ""
        chosen += [
            Choice("model.name", model, f"a capsule network for {kind}{beside}"),
            Choice("model.options.decoder", "none", "classes alone; deconv also reconstructs the input"),
            Choice("loss.reconstruction", 0.0, "the network has no decoder"),
        ]
    chosen += [
        Choice("data.batch_size", batch, f"{train:,} {kind} for training give {steps:,} steps per epoch"),
        Choice("trainer.epochs", epochs, f"{epochs * steps:,} steps in total"),
        *patience_choices(epochs, len(scanned.splits["val"][1])),
        Choice("trainer.checkpoint_every", min(100, steps), "at least one checkpoint per epoch"),
        Choice("optim.warmup", min(500, max(1, round(0.05 * epochs * steps))), "a twentieth of the steps"),
    ]
    ratio = max(counts) / min(counts)
    if ratio >= UNBALANCED:
        why = f"the largest class has {ratio:.1f} times the {kind} of the smallest"
        chosen.append(Choice("loss.options.weight", "balanced", why))
    return chosen
