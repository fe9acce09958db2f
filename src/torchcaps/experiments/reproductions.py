"""Reproductions: published tables and figures, with the networks to train for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from torchcaps._registry import Registry, nearest
from torchcaps.config import bundled_names, from_table, raise_problems, read_toml
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.experiments.grid import PlannedRun
from torchcaps.experiments.metrics import METRICS
from torchcaps.report.registry import FIGURES
from torchcaps.train import Recipe, load_recipe
from torchcaps.train.recipe import COMPUTE_KEYS, learning_settings


@dataclass(frozen=True)
class NetworkSpec:
    """One row of the table of a reproduction.

    Attributes:
        label: Name of the row.
        recipe: Name or file of the recipe.
        changes: `key=value` changes to the recipe.
        seeds: Number of runs, with consecutive seeds.
        paper: Numbers of the paper in %, by column of the metric.
    """

    label: str
    recipe: str
    changes: list[str] = field(default_factory=list)
    seeds: int = field(default=1, metadata={"least": 1})
    paper: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduction:
    """A published table or figure.

    Attributes:
        name: Name on the command line.
        title: Heading of the table.
        source: The paper, with the numbers of its tables and figures.
        metric: Name in `METRICS`.
        networks: Rows of the table. Figures of one network use the first row that can have them.
        note: Differences from the paper.
        figures: Names in `FIGURES`.
        same_experiment: Whether networks and protocol are those of the paper. If not, as for smaller networks, the
            paper's numbers are in parentheses.
    """

    name: str
    title: str
    source: str
    metric: str
    networks: list[NetworkSpec]
    note: str = ""
    figures: list[str] = field(default_factory=list)
    same_experiment: bool = True


def list_reproductions() -> list[str]:
    """Return the names of the reproductions in the package.

    Returns:
        The names in alphabetical order.

    Example:
        >>> "mnist_table1" in list_reproductions()
        True
    """
    return bundled_names("reproduction")


def load_reproduction(source: str | Path) -> Reproduction:
    """Load a reproduction by name or from a TOML file.

    Args:
        source: Name of a reproduction in the package, or path of a file.

    Returns:
        The reproduction.

    Raises:
        UnknownNameError: If there is no reproduction of this name.
        ConfigError: If the file has unknown keys, values of wrong types, or unknown metrics, figures or columns.

    Example:
        >>> load_reproduction("mnist_table1").networks[0].paper
        {'error': 0.25}
    """
    origin = f"reproduction '{source}'"
    entry = from_table(Reproduction, read_toml("reproduction", source), [], origin)
    raise_problems(list(_problems(entry)), origin)
    return entry


def plan_runs(entry: Reproduction, changes: Sequence[str] = ()) -> list[PlannedRun]:
    """Return all runs of a reproduction; every network runs once before any runs a second time.

    Args:
        entry: The reproduction.
        changes: `key=value` changes to all recipes.

    Returns:
        The runs in order.

    Raises:
        ConfigError: If recipes cannot be loaded; the message lists all of them.

    Example:
        >>> [planned.recipe.model.name for planned in plan_runs(load_reproduction("attacks"))]
        ['capsnet_small', 'cnn_small']
    """
    recipes, problems = {}, {}
    for network in entry.networks:
        try:
            recipes[network.label] = load_recipe(network.recipe, [*network.changes, *changes])
        except TorchcapsError as error:
            problems[str(error)] = None
    if problems:
        raise ConfigError("\n".join(problems))
    runs = []
    for offset in range(max(network.seeds for network in entry.networks)):
        for network in entry.networks:
            if offset < network.seeds:
                recipe = recipes[network.label]
                recipe = replace(recipe, seed=recipe.seed + offset)
                runs.append(PlannedRun(network.label, recipe, run_name(recipe)))
    return runs


def changes_experiment(change: str) -> bool:
    """Return whether a `key=value` change affects results, unlike accelerator and precision.

    Args:
        change: Override of a recipe.

    Returns:
        Whether results with it are those of another experiment.

    Example:
        >>> changes_experiment("trainer.epochs=1"), changes_experiment("trainer.precision=bf16-mixed")
        (True, False)
    """
    return change.partition("=")[0].strip().removeprefix("trainer.") not in COMPUTE_KEYS


def run_name(recipe: Recipe) -> str:
    """Return the folder of a run, which contains a hash of the recipe: reproductions share equal runs.

    Args:
        recipe: Recipe of the run.

    Returns:
        Name of the folder.

    Example:
        >>> run_name(load_recipe("digits")) == run_name(load_recipe("digits", ["description=other words"]))
        True
    """
    values = non_default_fields(replace(learning_settings(recipe), seed=0))
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    return f"{recipe.name}-{digest}-seed{recipe.seed}"


def non_default_fields(value: Any) -> Any:
    """Return the fields that differ from their defaults; new keys of recipes thus keep the names of earlier runs."""
    if not is_dataclass(value):
        return value
    table = {}
    for each in fields(value):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if getattr(value, each.name) != default:
            table[each.name] = non_default_fields(getattr(value, each.name))
    return table


def _problems(entry: Reproduction) -> Iterator[str]:
    registries: dict[str, tuple[Registry[Any], list[str]]] = {
        "metric": (METRICS, [entry.metric]),
        "figures": (FIGURES, entry.figures),
    }
    for key, (registry, names) in registries.items():
        unknown = [name for name in names if name not in registry]
        yield from (f"{key}: unknown {registry.kind} '{name}'{nearest(name, registry)}" for name in unknown)
    if not entry.networks:
        yield "networks: expected at least one, got an empty list"
    columns = METRICS[entry.metric].columns if entry.metric in METRICS else ()
    labels = [network.label for network in entry.networks]
    for number, network in enumerate(entry.networks):
        if network.label in labels[:number]:
            yield f"networks[{number}].label: expected a unique label, got '{network.label}' again"
        for column in network.paper if columns else ():
            if column not in columns:
                yield f"networks[{number}].paper: unknown column '{column}'{nearest(column, columns)}"
