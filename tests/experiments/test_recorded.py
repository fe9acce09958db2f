from __future__ import annotations

import pytest

from torchcaps.experiments import load_recorded, load_reproduction, recorded_minutes, with_direction
from torchcaps.experiments.metrics import METRICS


@pytest.mark.parametrize("name", sorted(load_recorded()))
def test_recorded_networks_are_those_of_the_reproduction(name: str) -> None:
    entry = load_reproduction(name)
    labels = [network.label for network in entry.networks]
    for label, network in load_recorded()[name].items():
        assert label in labels
        assert set(network.columns) <= set(METRICS[entry.metric].columns)
        assert network.minutes > 0
        assert network.runs > 0


def test_minutes() -> None:
    known = load_recorded()["mnist_table1"]
    assert recorded_minutes("mnist_table1", ["CNN", "CNN"]) == 2 * known["CNN"].minutes
    assert recorded_minutes("mnist_table1", ["other"]) is None
    assert recorded_minutes("other", ["CNN"]) is None


def test_direction() -> None:
    assert [with_direction(column) for column in ("error, 13 crops", "accuracy", "")] == [
        "error, 13 crops ↓",
        "accuracy ↑",
        "",
    ]
