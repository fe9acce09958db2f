"""Recorded results of the reproductions, bundled with the package.

`scripts/make_tables.py` writes `reproductions/recorded.json` from `results/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from torchcaps.experiments._json import from_table
from torchcaps.experiments.statistics import Statistic

FILE = "recorded.json"


@dataclass(frozen=True)
class RecordedNetwork:
    """Recorded result of one network of a reproduction.

    Args:
        columns: Statistics in %, by column.
        minutes: Minutes of training of one run.
        runs: Number of runs.
        parameters: Number of parameters, decoder included.
        machine: Cores and processor.
        outdated: Whether the recipe has changed since the runs.
    """

    columns: dict[str, Statistic]
    minutes: float
    runs: int
    parameters: int
    machine: str
    outdated: bool = False


def load_recorded() -> dict[str, dict[str, RecordedNetwork]]:
    """Return the recorded results: by name of the reproduction, then by label of the network.

    Returns:
        The results; reproductions and networks that have not been run are missing.

    Example:
        >>> load_recorded()["mnist_efficient"]["Efficient-CapsNet"].columns["error"].mean
        0.43
    """
    return _load()


@cache
def _load() -> dict[str, dict[str, RecordedNetwork]]:
    table: dict[str, Any] = json.loads((resources.files("torchcaps") / "reproductions" / FILE).read_text("utf-8"))
    return {
        name: {label: from_table(RecordedNetwork, row) for label, row in networks.items()}
        for name, networks in table.items()
    }


def recorded_minutes(name: str, labels: Iterable[str]) -> float | None:
    """Return the recorded minutes of training of networks, one run of each.

    Args:
        name: Name of the reproduction.
        labels: The networks.

    Returns:
        The sum, or None if one of them has no recorded result.

    Example:
        >>> recorded_minutes("mnist_efficient", ["no such network"]) is None
        True
    """
    known = load_recorded().get(name, {})
    labels = list(labels)
    if any(label not in known for label in labels):
        return None
    return sum(known[label].minutes for label in labels)
