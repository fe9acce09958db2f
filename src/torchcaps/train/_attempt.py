"""One run among several: started, resumed or taken as it is, then measured; the others go on whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchcaps.errors import CheckpointError, TorchcapsError
from torchcaps.train.recipe import Recipe, parse_recipe, what_it_learns
from torchcaps.train.run import Run


def attempt(
    recipe: Recipe, path: Path, measure: Callable[[Run], dict[str, Any]], *, progress: bool = False
) -> dict[str, Any]:
    """Bring a run to its end and measure it: what it came to, or why it failed, or that it was stopped.

    A run that is finished already is taken as it is, and a broken-off one goes on. Only a folder with the run of
    another recipe is an error.
    """
    from torchcaps.train._start import resume, start

    known = (path / "run.json").exists()
    if known:
        check_same(Run.open(path), recipe)
    # Whatever a network cannot do is a result to report: the others go on.
    try:
        run = resume(path, progress=progress) if known else start(recipe, path, progress=progress)
        if run.status != "finished":
            return {"status": run.status}
        return {"status": "finished", **measure(run)}
    except Exception as error:
        return {"status": "failed", "error": reason(error)}


def check_same(run: Run, recipe: Recipe) -> None:
    """Raise unless the run is one of this recipe, whatever it is called and however it is described and computed."""
    # Read back from its text, as the run's own recipe was.
    wanted, there = (asdict(what_it_learns(each)) for each in (parse_recipe(recipe.to_toml()), run.recipe))
    differing = [key for key in wanted if wanted[key] != there[key]]
    if differing:
        raise CheckpointError(
            f"folder: expected a run of the same recipe, got '{run.path}' with another one ({', '.join(differing)} "
            "differs); choose another folder"
        )


def reason(error: Exception) -> str:
    """Why something failed, in one line: the words of an error of ours, else its kind as well.

    >>> reason(KeyError("x"))
    "KeyError: 'x'"
    """
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return first if isinstance(error, TorchcapsError) else f"{type(error).__name__}: {first}"
