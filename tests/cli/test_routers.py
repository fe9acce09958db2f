from __future__ import annotations

import pytest

from torchcaps import list_routers
from torchcaps.nn import ROUTERS


def test_all_routers_are_listed(ask, ask_json) -> None:
    entries = {entry["name"]: entry for entry in ask_json("routers")}
    assert list(entries) == list_routers()
    assert entries["dynamic"]["options"] == {"iters": 3, "leaky": False, "grad": "all", "squash": "standard"}
    assert entries["dynamic"]["backends"] == ["reference", "triton", "cpu", "recompute"]
    assert entries["uniform"]["options"] == {"squash": "standard"}
    code, out, _ = ask("routers")
    assert code == 0
    assert all(name in out for name in list_routers())


@pytest.mark.parametrize("name", ROUTERS.names())
def test_router_descriptions(name: str, ask, ask_json) -> None:
    entry = ask_json("routers", name)
    assert 20 < len(entry["description"]) <= 100
    assert entry["class"] == ROUTERS[name].__name__
    assert set(entry["laws"]).isdisjoint(entry["breaks"])
    code, out, _ = ask("routers", name)
    assert code == 0
    assert f"{name}: {entry['description']}" in out
    assert all(f"model.options.routing.{option}" in out for option in entry["options"])
    assert all(law.replace("_", " ") in out for law in entry["breaks"])


def test_pattern_filters_list(ask_json) -> None:
    assert [entry["name"] for entry in ask_json("routers", "*routing")] == list_routers("*routing")


def test_unknown_router(ask) -> None:
    assert ask("routers", "kuramota") == (2, "", "unknown router 'kuramota'; did you mean 'kuramoto'?\n")
