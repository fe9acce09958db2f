"""Bring one run of an experiment to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.errors import CheckpointError, TorchcapsError
from torchcaps.train.recipe import Recipe, learning_settings, parse_recipe
from torchcaps.train.run import Run

if TYPE_CHECKING:
    from lightning.pytorch import Callback


def run_or_resume(recipe: Recipe, path: Path, *, progress: bool = False, callbacks: Sequence[Callback] = ()) -> Run:
    """Start a run, resume an interrupted one, or return a finished one.

    Args:
        recipe: The recipe of the run.
        path: The folder of the run.
        progress: Whether training prints its progress.
        callbacks: Further callbacks of Lightning.

    Returns:
        The run; its status is "stopped" after Ctrl-C.

    Raises:
        CheckpointError: If the folder contains a run of another recipe.
    """
    from torchcaps.train import fit, resume

    if not (path / "run.json").exists():
        return fit(recipe, path, progress=progress, callbacks=callbacks)
    check_same_recipe(Run.open(path), recipe)
    return resume(path, progress=progress, callbacks=callbacks)


def is_finished(path: Path) -> bool:
    """Return whether a folder contains a finished run."""
    return (path / "run.json").exists() and Run.open(path).status == "finished"


def check_same_recipe(run: Run, recipe: Recipe) -> None:
    """Raise CheckpointError if a run has another recipe; name, description, accelerator and precision may differ."""
    # Both sides are parsed from text, so that values compare equal.
    expected, actual = (asdict(learning_settings(each)) for each in (parse_recipe(recipe.to_toml()), run.recipe))
    differing = [key for key in expected if expected[key] != actual[key]]
    if differing:
        raise CheckpointError(
            f"folder: expected a run of the same recipe, got '{run.path}' with different {', '.join(differing)} "
            "(choose another folder)"
        )


def failure_reason(error: Exception) -> str:
    """Return the first line of an error, with its type unless it is an error of torchcaps.

    >>> failure_reason(KeyError("x"))
    "KeyError: 'x'"
    """
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return first if isinstance(error, TorchcapsError) else f"{type(error).__name__}: {first}"
