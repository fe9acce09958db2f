"""Search the values of a recipe: trials of Optuna, shared between processes and hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps._extras import explain_missing
from torchcaps._files import make_folder, read_bounded, write_text
from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import ConfigError, WriteError
from torchcaps.experiments._json import write_json
from torchcaps.experiments.claims import Claim, Claims
from torchcaps.experiments.grid import CLAIMS, is_unlocked
from torchcaps.experiments.reporter import SILENT, Reporter
from torchcaps.experiments.run_or_resume import check_same_recipe, failure_reason, run_or_resume
from torchcaps.experiments.share_work import share_work
from torchcaps.experiments.space import Dimension, combinations
from torchcaps.experiments.sweep_result import PRUNED, Sweep, SweepTrial, values_of
from torchcaps.train import Recipe, Run, load_recipe
from torchcaps.train.environment import commit, machine, now, versions
from torchcaps.train.recipe import checking_options, full_keys, with_absolute_paths

if TYPE_CHECKING:
    from torchcaps.experiments.sweep_study import Direction, SweepStudy

RESULT, BEST, RECIPE, SPACE = "sweep.json", "best.toml", "recipe.toml", "space.json"
TRIALS = 20


@dataclass(frozen=True)
class _Plan:
    """What all processes of a sweep agree on."""

    folder: Path
    recipe: Recipe
    space: list[Dimension]
    trials: int
    metric: str
    direction: Direction
    prune: bool

    def recipe_of(self, values: dict[str, str]) -> Recipe:
        """Return the recipe of a trial."""
        return load_recipe(self.folder / RECIPE, [f"{key}={value}" for key, value in values.items()])


def sweep(
    recipe: Recipe,
    folder: str | Path,
    space: Sequence[Dimension],
    *,
    trials: int | None = None,
    prune: bool = True,
    wait: bool = True,
    reporter: Reporter = SILENT,
) -> Sweep:
    """Train a recipe with different values and find the best ones, by the metric on the validation split.

    The first trials are random. The values of the following ones are those that Optuna expects to be good (TPE). If
    all values are choices and `trials` allows it, every combination is tried once instead. A trial whose validation is
    worse than the median of the others after the same epoch ends early. The test split selects nothing.

    Each trial is a run in a folder of its own. Several processes with the same folder share the trials, on one host or
    several; a trial of a process that was killed is resumed with the same values. `sweep.json` is written after each
    trial, and `best.toml`, the recipe of the best trial, at the end.

    Args:
        recipe: The recipe.
        folder: The folder of the sweep.
        space: The values that vary (`parse_space`).
        trials: Number of trials over all processes; by default 20, or the number of combinations of choices. More
            trials than before extend a sweep.
        prune: Whether to end trials early. Runs of several processes (`trainer.devices`) are never ended early.
        wait: Whether to wait for the trials of other processes, and to take over those of killed ones.
        reporter: Receives the progress.

    Returns:
        All trials. The status is "stopped" after Ctrl-C.

    Raises:
        ConfigError: If the space is empty or has wrong keys, there is no validation split, or the folder has another
            sweep.
        DataError: If the journal of the sweep is damaged.

    Example:
        >>> from torchcaps.experiments import parse_space
        >>> from torchcaps.train import load_recipe
        >>> space, _ = parse_space(["optim.lr=log(1e-4,1e-2)"])
        >>> sweep(load_recipe("digits"), "runs/sweep-digits", space, trials=30).best  # doctest: +SKIP
    """
    with explain_missing():
        from torchcaps.experiments.sweep_study import SweepStudy

    plan, grid = _prepare(recipe, Path(folder), list(space), trials, prune)
    epochs = recipe.trainer.epochs
    study = SweepStudy(
        plan.folder,
        plan.space,
        direction=plan.direction,
        seed=recipe.seed,
        grid=grid,
        startup=max(2, min(10, plan.trials // 3)),
        warmup=max(1, epochs // 5),
    )
    claims = Claims(plan.folder / CLAIMS)
    found: dict[int, SweepTrial] = {}
    result = _result(plan, study, found)
    for trial in share_work(
        range(plan.trials),
        lambda slot: _begin(slot, plan, study, claims),
        lambda slot: _train(slot, plan, study, reporter),
        wait=wait,
        pause=claims.interval / 5,
        reporter=reporter,
    ):
        found[trial.number] = trial
        result = _result(plan, study, found)
        write_json(plan.folder / RESULT, result)
    if result.best is not None and result.status == "finished":
        write_text(plan.folder / BEST, plan.recipe_of(found[result.best].values).to_toml())
        result = _result(plan, study, found, final=True)
        write_json(plan.folder / RESULT, result)
    return result


def _prepare(
    recipe: Recipe, folder: Path, space: list[Dimension], trials: int | None, prune: bool
) -> tuple[_Plan, list[tuple[str, ...]] | None]:
    """Check the sweep and write what all processes share; return it, and all combinations if each is tried once."""
    if not space:
        raise ConfigError("space: expected at least one key with several values, such as optim.lr=log(1e-4,1e-2)")
    if trials is not None and trials < 1:
        raise ConfigError(f"trials: expected at least 1, got {trials}")
    keys = full_keys(asdict(recipe), [f"{dimension.key}=" for dimension in space])
    space = [replace(dimension, key=key[:-1]) for dimension, key in zip(space, keys, strict=True)]
    every = combinations(space)
    grid = every if every is not None and (trials is None or trials >= len(every)) else None
    count = len(grid) if grid is not None else trials or TRIALS
    recipe = with_absolute_paths(recipe)
    with checking_options("data.options", recipe.data.options):
        val = load_data(recipe.data.name, "val", **recipe.data.options)
        if not len(val):
            raise ConfigError(
                "sweep: expected a recipe with a validation split, but this one has none (it selects the best trial)"
            )
    text, shape = recipe.to_toml(), json.dumps([asdict(dimension) for dimension in space], indent=1) + "\n"
    make_folder(folder)
    for name, content in ((RECIPE, text), (SPACE, shape)):
        if not (folder / name).exists():
            # All processes of one sweep write the same.
            write_text(folder / name, content)
        elif read_bounded(folder / name).decode("utf-8", "replace") != content:
            raise ConfigError(
                f"folder: expected the same sweep, got another {name} in '{folder}' (choose another folder)"
            )
    by_accuracy = _is_classifier(recipe, val)
    metric, direction = "val_accuracy" if by_accuracy else "val_loss", "maximize" if by_accuracy else "minimize"
    plan = _Plan(folder, recipe, space, count, metric, direction, prune)
    for dimension in space:
        for value in dimension.ends:
            # A wrong key or value is reported before anything is trained.
            plan.recipe_of({dimension.key: value})
    return plan, grid


def _is_classifier(recipe: Recipe, data: ImageDataset) -> bool:
    import torch

    from torchcaps.train.module import make_model

    # The file of pretrained weights is not needed.
    options = {key: value for key, value in recipe.model.options.items() if key != "weights"}
    recipe = replace(recipe, model=replace(recipe.model, options=options))
    with torch.device("meta"):
        return make_model(recipe, data).is_classifier


def _name(slot: int) -> str:
    return f"trial-{slot:03d}"


def _begin(slot: int, plan: _Plan, study: SweepStudy, claims: Claims) -> SweepTrial | Claim | nullcontext[None] | None:
    """Return a trial that is done, the claim to train it under, or None if another process trains it."""
    name = _name(slot)
    if claims.state(name).status in ("finished", "failed"):
        trial = _read(slot, study)
        if trial is not None and trial.status not in ("running", "stopped"):
            return trial
        # The journal was removed, or is not yet visible on this host.
        return claims.take(name, again=["finished", "failed"])
    return claims.take(name, may_take_over=partial(is_unlocked, plan.folder / name, plan.recipe))


def _train(slot: int, plan: _Plan, study: SweepStudy, reporter: Reporter) -> SweepTrial:
    from torchcaps.experiments.prune import PruneTrial

    known = _read(slot, study)
    if known is not None and known.status != "running":
        return known
    trial = study.begin(slot)
    values, path = values_of(trial.params), plan.folder / _name(slot)
    shown = ", ".join(f"{key}={value}" for key, value in values.items())
    reporter.announce(f"{slot + 1}/{plan.trials}  {shown}")
    # Any error of a trial is a result to report.
    try:
        recipe = plan.recipe_of(values)
        if (path / "run.json").exists():
            check_same_recipe(Run.open(path), recipe)
        callbacks = [PruneTrial(trial, plan.metric, prune=plan.prune)] if recipe.trainer.devices == 1 else []
        run = run_or_resume(recipe, path, progress=reporter.shows_progress, callbacks=callbacks)
    except KeyboardInterrupt:
        return SweepTrial(slot, path.name, values, "stopped")
    except WriteError:
        # A full disk says nothing about the values: the trial can be resumed.
        raise
    except Exception as error:
        study.finish(trial, None, "failed", error=failure_reason(error))
        return SweepTrial(slot, path.name, values, "failed", error=failure_reason(error))
    if run.status != "finished":
        return SweepTrial(slot, path.name, values, "stopped")
    ended = study.find(slot)
    pruned = ended is not None and ended.user_attrs.get(PRUNED, False)
    about = {"epochs": len(run.metrics()["epoch"]), "seconds": run.record["seconds"]}
    study.finish(trial, run.results["best"][plan.metric], "pruned" if pruned else "finished", **about)
    done = _read(slot, study)
    assert done is not None, "a trial that has ended is in the journal"
    return done


def _read(slot: int, study: SweepStudy) -> SweepTrial | None:
    """Return a trial as the journal has it."""
    trial = study.find(slot)
    if trial is None:
        return None
    about, status = trial.user_attrs, {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    return SweepTrial(
        slot,
        _name(slot),
        values_of(trial.params),
        status.get(trial.state.name, "running"),
        trial.value if trial.state.name == "COMPLETE" else None,
        *(about.get(key) for key in ("epochs", "seconds", "error")),
    )


def _result(plan: _Plan, study: SweepStudy, found: dict[int, SweepTrial], *, final: bool = False) -> Sweep:
    trials = [found[slot] for slot in sorted(found)]
    statuses = {trial.status for trial in trials}
    values = {trial.number: trial.value for trial in trials if trial.value is not None}
    best = None
    if values:
        best = (max if plan.direction == "maximize" else min)(values, key=lambda number: values[number])
    tested: dict[str, float] = {}
    if final and best is not None:
        results = Run.open(plan.folder / _name(best)).results
        tested = {
            key: value for key, value in results.items() if key.startswith("test_") and isinstance(value, int | float)
        }
    return Sweep(
        recipe=asdict(plan.recipe),
        space=plan.space,
        metric=plan.metric,
        direction=plan.direction,
        planned=plan.trials,
        status="stopped" if "stopped" in statuses else "finished" if len(trials) == plan.trials else "running",
        date=now(),
        commit=commit(),
        versions=versions(),
        machine=machine(),
        trials=trials,
        best=best,
        best_test=tested,
        importance=study.importance() if final else {},
    )
