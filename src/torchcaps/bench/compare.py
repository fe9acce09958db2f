"""Compare routers: the same network, data and budget for each, several seeds, ordinary runs in one folder."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torchcaps.bench.compare_run import measure
from torchcaps.bench.compare_table import Result, summarise
from torchcaps.data import ImageData, load_data
from torchcaps.errors import ConfigError
from torchcaps.models import MODELS
from torchcaps.nn import ROUTERS
from torchcaps.train import Recipe
from torchcaps.train._attempt import attempt
from torchcaps.train._record import commit, machine, versions
from torchcaps.train._tables import parse_value
from torchcaps.train.run import write_atomically

Tell = Callable[[str], None]


def compare(
    recipe: Recipe,
    folder: str | Path,
    *,
    routers: Sequence[str] = (),
    seeds: int = 3,
    tests: Sequence[str] = (),
    progress: bool = False,
    tell: Tell = lambda text: None,
) -> Result:
    """Train the recipe's network with each router and seed, in runs of their own in one folder, and measure them.

    Without `routers` all that there are take part. Seeds are counted from the recipe's own. Of the recipe's options of
    its router each other router gets those that it has as well. A test is the name of a data set with its options,
    `affine key=value`: its test part is tried after training. Runs that are finished already are taken as they are,
    and broken-off ones go on. One that fails is told with its reason, and the others go on. `compare.json` is written
    after each run; where Ctrl-C stopped one, the status of the result is "stopped".
    """
    names = list(dict.fromkeys(routers)) or ROUTERS.names()
    _check(recipe, names, seeds)
    others = {text: _test_data(text, recipe) for text in tests}
    folder = Path(folder)
    wanted = list(range(recipe.seed, recipe.seed + seeds))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    result: Result = {}
    plan = [(seed, name) for seed in wanted for name in names]
    # All routers once before any a second time, so that a comparison that is stopped still compares.
    for number, (seed, name) in enumerate(plan, start=1):
        path = folder / f"{name}-seed{seed}"
        tell(f"{number}/{len(plan)}  {name}, seed {seed}")
        measured = partial(measure, tests=others, memory=seed == wanted[0])
        row = attempt(with_router(recipe, name, seed), path, measured, progress=progress)
        found[name].append({"seed": seed, **row})
        result = _result(recipe, found, wanted, list(tests), stopped=row["status"] == "stopped")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "compare.json", json.dumps(result, indent=1) + "\n")
        if row["status"] == "stopped":
            break
    return result


def with_router(recipe: Recipe, router: str, seed: int) -> Recipe:
    """The recipe with another router and seed; options that its router has and the other one has not are dropped."""
    given = recipe.model.options.get("routing", {})
    options = dict(given) if isinstance(given, Mapping) else {}
    known = inspect.signature(ROUTERS[router]).parameters
    routing = {"name": router, **{key: value for key, value in options.items() if key in known}}
    return replace(recipe, seed=seed, model=replace(recipe.model, options={**recipe.model.options, "routing": routing}))


def _check(recipe: Recipe, routers: Sequence[str], seeds: int) -> None:
    _ = [ROUTERS[name] for name in routers]
    if seeds < 1:
        raise ConfigError(f"seeds: expected a count of at least 1, got {seeds}")
    if "routing" not in inspect.signature(MODELS[recipe.model.name]).parameters:
        fitting = [name for name in MODELS if "routing" in inspect.signature(MODELS[name]).parameters]
        raise ConfigError(
            f"model.name: expected a model whose router can be chosen ({', '.join(fitting)}), got '{recipe.model.name}'"
        )


def _test_data(text: str, recipe: Recipe) -> ImageData:
    name, *words = shlex.split(text) or [""]
    pairs = [word.partition("=") for word in words]
    if any(not key or not equals for key, equals, _ in pairs):
        raise ConfigError(f"test: expected a data set and its options, 'NAME key=value', got '{text}'")
    data = load_data(name, "test", **{key: parse_value(value) for key, _, value in pairs})
    own = load_data(recipe.data.name, "test", **recipe.data.options)
    shape = recipe.data.augment.output_shape(own.image_shape)
    if data.class_names != own.class_names or data.image_shape != shape:
        raise ConfigError(
            f"test: expected images {shape} of the classes {', '.join(own.class_names)}, as the recipe has them, "
            f"got {data.image_shape} of {', '.join(data.class_names)} ('{text}')"
        )
    return data


def _result(
    recipe: Recipe, found: Mapping[str, list[dict[str, Any]]], seeds: list[int], tests: list[str], *, stopped: bool
) -> Result:
    rows = [
        summarise(name, with_router(recipe, name, recipe.seed).model.options["routing"], runs)
        for name, runs in found.items()
    ]
    complete = all(len(runs) == len(seeds) for runs in found.values())
    return {
        "comparison": recipe.name,
        "status": "stopped" if stopped else "finished" if complete else "running",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "machine": machine(),
        "seeds": seeds,
        "tests": tests,
        "recipe": asdict(recipe),
        "rows": rows,
    }
