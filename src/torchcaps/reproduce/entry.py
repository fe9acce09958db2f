"""A reproduction: one published table or picture, and the networks that are trained for it, as typed data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torchcaps._registry import nearest
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.reproduce.figures import FIGURES
from torchcaps.reproduce.measures import MEASURES
from torchcaps.train import Recipe, load_recipe
from torchcaps.train._shipped import build_all, check_none, read_table, shipped_names
from torchcaps.train.recipe import COMPUTED, what_it_learns


@dataclass(frozen=True)
class Network:
    """One row of the table: a recipe with `key=value` changes, how many seeds of it, and what the paper has.

    `paper` gives the paper's number, in per cent, for each column of the measure that it has one for.
    """

    label: str
    recipe: str
    changes: list[str] = field(default_factory=list)
    seeds: int = field(default=1, metadata={"least": 1})
    paper: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Reproduction:
    """A published table or picture: what is measured on every network, in `MEASURES`, and drawn, in `FIGURES`.

    Pictures of a single network are of the first that they can be drawn from: the one that matters most stands first.
    """

    name: str
    title: str
    source: str
    measure: str
    networks: list[Network]
    note: str = ""
    figures: list[str] = field(default_factory=list)


class Planned(NamedTuple):
    """A run to be had: of which network, with which recipe, and the name of its folder."""

    network: Network
    recipe: Recipe
    folder: str


def list_reproductions() -> list[str]:
    """The names of the reproductions that come with the package.

    >>> "mnist_table1" in list_reproductions()
    True
    """
    return shipped_names("reproduction")


def load_reproduction(source: str | Path) -> Reproduction:
    """A reproduction from a TOML file, or by the name of one that comes with the package.

    >>> load_reproduction("mnist_table1").networks[0].paper
    {'error': 0.25}
    """
    origin = f"reproduction '{source}'"
    entry = build_all(Reproduction, read_table("reproduction", source), [], origin)
    check_none(list(_problems(entry)), origin)
    return entry


def plan(entry: Reproduction, changes: Sequence[str] = ()) -> list[Planned]:
    """All runs of a reproduction, every network once before any a second time; `changes` go to all recipes.

    >>> [planned.recipe.model.name for planned in plan(load_reproduction("attacks"))]
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
    for turn in range(max(network.seeds for network in entry.networks)):
        for network in entry.networks:
            if turn < network.seeds:
                recipe = recipes[network.label]
                recipe = replace(recipe, seed=recipe.seed + turn)
                runs.append(Planned(network, recipe, run_name(recipe)))
    return runs


def alters(change: str) -> bool:
    """Whether a `key=value` change makes another experiment of a recipe, or only says how it is computed.

    >>> alters("trainer.epochs=1"), alters("trainer.precision=bf16-mixed")
    (True, False)
    """
    return change.partition("=")[0].strip() not in {f"trainer.{name}" for name in COMPUTED}


def run_name(recipe: Recipe) -> str:
    """The folder of a run: the same for what learns the same, so that reproductions share what they have in common.

    >>> run_name(load_recipe("digits")) == run_name(load_recipe("digits", ["description=other words"]))
    True
    """
    values = _given(replace(what_it_learns(recipe), seed=0))
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    return f"{recipe.name}-{digest}-seed{recipe.seed}"


def _given(value: Any) -> Any:
    """What differs from the defaults: a key that recipes get some day leaves the names of older runs as they are."""
    if not is_dataclass(value):
        return value
    table = {}
    for each in fields(value):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if getattr(value, each.name) != default:
            table[each.name] = _given(getattr(value, each.name))
    return table


def _problems(entry: Reproduction) -> Iterator[str]:
    columns: Sequence[str] = ()
    known: Mapping[str, Any] = {"measure": MEASURES, "figures": FIGURES}
    for key, names in (("measure", [entry.measure]), ("figures", entry.figures)):
        unknown = [name for name in names if name not in known[key]]
        yield from (f"{key}: unknown {known[key].kind} '{name}'{nearest(name, known[key])}" for name in unknown)
    if entry.measure in MEASURES:
        columns = MEASURES[entry.measure].columns
    if not entry.networks:
        yield "networks: expected at least one, got none"
    labels = [network.label for network in entry.networks]
    for place, network in enumerate(entry.networks):
        if network.label in labels[:place]:
            yield f"networks[{place}].label: expected a new one, got '{network.label}' again"
        for column in network.paper if columns else ():
            if column not in columns:
                yield f"networks[{place}].paper: unknown column '{column}'{nearest(column, columns)}"
