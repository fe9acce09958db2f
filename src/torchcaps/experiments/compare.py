"""Compare routers: one network, data set and budget, every router, several seeds."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from torchcaps.config import parse_value
from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import ConfigError
from torchcaps.experiments._json import write_json
from torchcaps.experiments.compare_metrics import measure_run
from torchcaps.experiments.comparison import Comparison, RouterMetrics, RouterRun, summarize_router
from torchcaps.experiments.grid import PlannedRun, run_grid
from torchcaps.experiments.reporter import SILENT, Reporter
from torchcaps.models import MODELS
from torchcaps.nn import ROUTERS
from torchcaps.train import Recipe, Run
from torchcaps.train.environment import commit, machine, now, versions


def compare(
    recipe: Recipe,
    folder: str | Path,
    *,
    routers: Sequence[str] = (),
    controls: Sequence[str] = (),
    seeds: int = 3,
    tests: Sequence[str] = (),
    wait: bool = True,
    reporter: Reporter = SILENT,
) -> Comparison:
    """Train the network of a recipe with each router and seed, and measure the runs.

    Each run has its own folder. Finished runs are not repeated, interrupted ones are resumed. Several processes with
    the same folder share the runs, on one host or several (`run_grid`). `compare.json` is written after each run.
    Options of the recipe's router are passed to the routers that accept them.

    Args:
        recipe: The recipe of all runs.
        folder: The folder of the comparison.
        routers: Names of routers; all by default.
        controls: Names of models without routing to train as well, such as `backbone_linear`, with the options of the
            recipe's model that they accept.
        seeds: Number of runs of each router, counted from the seed of the recipe.
        tests: Further test data, as `NAME key=value`.
        wait: Whether to wait for the runs of other processes, and to take over those of killed ones.
        reporter: Receives the progress.

    Returns:
        One row per router. The status is "stopped" after Ctrl-C.

    Raises:
        ConfigError: If the model has no selectable router, `seeds` is less than 1, or test data do not fit.
        UnknownNameError: If there is no router or data set of a name.

    Example:
        >>> from torchcaps.train import load_recipe
        >>> compare(load_recipe("digits"), "runs/compare-digits", routers=["dynamic", "em"], seeds=1)  # doctest: +SKIP
    """
    names = list(dict.fromkeys(routers)) or ROUTERS.names()
    _check(recipe, names, seeds)
    controls = list(dict.fromkeys(controls))
    _ = [MODELS[name] for name in controls]
    data = {text: _test_data(text, recipe) for text in tests}
    folder = Path(folder)
    # Every router runs once before any runs a second time, so that a stopped comparison still compares.
    plan = [
        PlannedRun(name, with_router(recipe, name, seed), f"{name}-seed{seed}")
        for seed in range(recipe.seed, recipe.seed + seeds)
        for name in names
    ]
    plan += [
        PlannedRun(name, with_model(recipe, name, seed), f"{name}-seed{seed}")
        for seed in range(recipe.seed, recipe.seed + seeds)
        for name in controls
    ]

    def measure(run: Run) -> RouterMetrics:
        return measure_run(run, data, memory=run.recipe.seed == recipe.seed)

    runs: dict[str, dict[int, RouterRun]] = {name: {} for name in (*names, *controls)}
    result = partial(_result, recipe, seeds=seeds, tests=list(tests))
    latest = result(runs)
    for outcome in run_grid(plan, folder, measure, wait=wait, reporter=reporter):
        seed = outcome.planned.recipe.seed
        runs[outcome.planned.label][seed] = RouterRun(seed, outcome.status, outcome.metrics, outcome.error)
        latest = result(runs)
        write_json(folder / "compare.json", latest)
    return latest


def with_router(recipe: Recipe, router: str, seed: int) -> Recipe:
    """Return the recipe with another router and seed; options that the router does not accept are dropped.

    Args:
        recipe: The recipe.
        router: Name of the router.
        seed: Seed.

    Returns:
        The changed recipe.
    """
    current = recipe.model.options.get("routing", {})
    options = dict(current) if isinstance(current, Mapping) else {}
    accepted = inspect.signature(ROUTERS[router]).parameters
    routing = {"name": router, **{key: value for key, value in options.items() if key in accepted}}
    return replace(recipe, seed=seed, model=replace(recipe.model, options={**recipe.model.options, "routing": routing}))


def with_model(recipe: Recipe, model: str, seed: int) -> Recipe:
    """Return the recipe with another model and seed; options that the model does not accept are dropped.

    Args:
        recipe: The recipe.
        model: Name of the model.
        seed: Seed.

    Returns:
        The changed recipe.
    """
    accepted = list(inspect.signature(MODELS[model]).parameters)[2:]
    options = {key: value for key, value in recipe.model.options.items() if key in accepted and key != "routing"}
    return replace(recipe, seed=seed, model=replace(recipe.model, name=model, options=options))


def _check(recipe: Recipe, routers: Sequence[str], seeds: int) -> None:
    _ = [ROUTERS[name] for name in routers]
    if seeds < 1:
        raise ConfigError(f"seeds: expected at least 1, got {seeds}")
    if "routing" not in inspect.signature(MODELS[recipe.model.name]).parameters:
        fitting = [name for name in MODELS if "routing" in inspect.signature(MODELS[name]).parameters]
        raise ConfigError(
            f"model.name: expected a model with a selectable router ({', '.join(fitting)}), got '{recipe.model.name}'"
        )


def _test_data(text: str, recipe: Recipe) -> ImageDataset:
    name, *words = shlex.split(text) or [""]
    pairs = [word.partition("=") for word in words]
    if any(not key or not equals for key, equals, _ in pairs):
        raise ConfigError(f"test: expected 'NAME key=value', got '{text}'")
    data = load_data(name, "test", **{key: parse_value(value) for key, _, value in pairs})
    own = load_data(recipe.data.name, "test", **recipe.data.options)
    shape = recipe.data.augment.output_shape(own.image_shape)
    if data.class_names != own.class_names or data.image_shape != shape:
        raise ConfigError(
            f"test: expected images {shape} with the classes {', '.join(own.class_names)} of the recipe, "
            f"got {data.image_shape} with {', '.join(data.class_names)} ('{text}')"
        )
    return data


def _result(
    recipe: Recipe, found: Mapping[str, Mapping[int, RouterRun]], *, seeds: int, tests: list[str]
) -> Comparison:
    # Runs of other processes may be done in another order.
    runs = {name: [each[seed] for seed in sorted(each)] for name, each in found.items()}
    options = {
        name: with_router(recipe, name, recipe.seed).model.options["routing"] if name in ROUTERS else {}
        for name in runs
    }
    statuses = [run.status for each in runs.values() for run in each]
    complete = len(statuses) == seeds * len(runs)
    return Comparison(
        recipe=asdict(recipe),
        status="stopped" if "stopped" in statuses else "finished" if complete else "running",
        date=now(),
        commit=commit(),
        versions=versions(),
        machine=machine(),
        seeds=list(range(recipe.seed, recipe.seed + seeds)),
        tests=tests,
        rows=[summarize_router(name, options[name], each) for name, each in runs.items()],
    )
