"""Read recipe.toml and run.json of a run folder, or rebuild them from the newest checkpoint that is not damaged."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps._files import make_folder, move, read_bounded
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.train._record import record_problem
from torchcaps.train.recipe import Recipe, parse_recipe

RECIPE, RECORD, CHECKPOINTS = "recipe.toml", "run.json", "checkpoints"


def text_hash(text: str | bytes) -> str:
    """Return the hash of recipe.toml that run.json holds.

    Args:
        text: The text, or its UTF-8 bytes.

    Returns:
        64 hexadecimal digits.
    """
    return hashlib.sha256(text.encode("utf-8") if isinstance(text, str) else text).hexdigest()


def read_record(folder: Path) -> dict[str, Any]:
    """Read run.json, or the record in the newest usable checkpoint if run.json is missing or damaged.

    Args:
        folder: The run folder.

    Returns:
        The record.

    Raises:
        CheckpointError: If neither can be read.
    """
    file = folder / RECORD
    try:
        record = json.loads(_read(file).decode("utf-8"))
        if (problem := record_problem(record)) is not None:
            raise ValueError(problem)
        return record
    except (OSError, ValueError, RecursionError) as error:
        reason = error
    entry = _saved_entry(folder)
    if entry is None or record_problem(entry["record"]) is not None:
        raise CheckpointError(f"run: expected a record in JSON, got '{file}' ({reason})")
    warnings.warn(f"run: '{file}' is missing or damaged ({reason}); using the record in a checkpoint", stacklevel=2)
    return dict(entry["record"])


def read_recipe(folder: Path) -> Recipe:
    """Read recipe.toml, or the recipe in the newest usable checkpoint if recipe.toml is missing, damaged or changed.

    The recipe of a finished run may be changed: nothing is trained with it.

    Args:
        folder: The run folder.

    Returns:
        The recipe.

    Raises:
        CheckpointError: If the folder is not a run folder.
        ConfigError: If recipe.toml is damaged and no checkpoint can be read.
    """
    file = folder / RECIPE
    problem: CheckpointError | ConfigError
    text = b""
    try:
        text = _read(file)
        recipe = parse_recipe(text, str(file))
        record = read_record(folder)
        if record.get("recipe_sha256", text_hash(text)) == text_hash(text) or record["status"] == "finished":
            return recipe
        problem = ConfigError(f"recipe: expected the recipe that the run was started with, got '{file}', which changed")
    except (OSError, ValueError) as error:
        # An error of the run's own files is one of ours; the others are those of reading.
        problem = (
            error
            if isinstance(error, ConfigError | CheckpointError)
            else CheckpointError(
                f"run: expected a run folder with {RECIPE} and {RECORD}, got '{folder}' ({_reason(error)})"
            )
        )
    entry = _saved_entry(folder)
    if entry is None:
        raise problem
    recipe = _extended(parse_recipe(entry["recipe"], "recipe in a checkpoint"), read_record(folder))
    if recipe.to_toml().encode("utf-8") != text:
        warnings.warn(f"{problem}; using the recipe in a checkpoint", stacklevel=2)
    return recipe


def set_aside_folders(folder: Path) -> None:
    """Rename folders that are in the place of files of a run.

    Args:
        folder: The run folder.
    """
    for path in [*folder.glob("*.*"), *(folder / CHECKPOINTS).glob("*.ckpt")]:
        if path.is_dir() and not path.is_symlink() and not path.stem.endswith("-damaged"):
            set_aside(path)


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder, so that it is kept.

    Args:
        path: The file or folder.

    Returns:
        The new path.
    """
    number = 1
    while (target := path.with_name(f"{path.name}-damaged-{number}")).exists():
        number += 1
    return move(path, target)


def restart(folder: Path) -> None:
    """Set the checkpoints of a run aside, so that it starts again from its first step.

    Args:
        folder: The run folder.
    """
    if (folder / CHECKPOINTS).exists():
        kept = set_aside(folder / CHECKPOINTS)
        warnings.warn(f"run: starting again from the first step; the old checkpoints are in '{kept}'", stacklevel=2)
    make_folder(folder / CHECKPOINTS)


def _extended(recipe: Recipe, record: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a checkpoint with the epochs that the run was extended to after it."""
    try:
        epochs = record["extended"][-1]["to"]
    except (KeyError, IndexError, TypeError):
        return recipe
    if not isinstance(epochs, int) or epochs <= recipe.trainer.epochs:
        return recipe
    return replace(recipe, trainer=replace(recipe.trainer, epochs=epochs))


def _saved_entry(folder: Path) -> dict[str, Any] | None:
    # Lightning is imported only where a checkpoint is read.
    from torchcaps.train.checkpoint import saved_entry

    return saved_entry(folder / CHECKPOINTS)


def _read(file: Path) -> bytes:
    """Read a regular file; a link, a device or a pipe in a run folder is somebody's mistake, or worse."""
    if file.is_symlink():
        raise ValueError("a symbolic link")
    return read_bounded(file)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
