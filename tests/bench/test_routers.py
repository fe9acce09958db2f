from __future__ import annotations

import pytest

from torchcaps.bench import CASES, Case, routers
from torchcaps.bench._layer import DIGIT_CAPS, vote_bytes
from torchcaps.bench.routers import add_router, check_twin, layer_tasks
from torchcaps.nn import ROUTERS, Router, make_router
from torchcaps.ops import _dispatch
from torchcaps.types import Capsules

NAMES = [name for name in CASES if name in ROUTERS and name not in ("dynamic", "em")]


def test_every_router_is_measured_and_its_twin_beside_its_reference():
    assert set(ROUTERS) <= set(CASES)
    for name in ROUTERS:
        names = [contender.name for contender in CASES[name].contenders]
        assert "reference" in names
        assert ("fused" in names) == (name in _dispatch.TWINS)


@pytest.mark.parametrize("name", NAMES)
def test_every_contender_does_the_same_work(name: str):
    case = CASES[name]
    point = {**case.points[0], "batch": 2, "children": 9, "parents": 3}
    for contender in case.contenders:
        tasks = contender.prepare(point)
        assert list(tasks) == ["forward", "forward+backward"]
        for call in tasks.values():
            call()


@pytest.mark.parametrize("name", NAMES)
def test_the_check_holds_and_finds_a_twin_that_is_wrong(name: str, monkeypatch):
    monkeypatch.setattr(routers, "CHECKED", [(3, 7, 5, 3, 6)])
    check_twin(name)
    right = ROUTERS[name].route

    def wrong(self, children, weight, *, bias=None, backend="auto"):
        out = right(self, children, weight, bias=bias, backend=backend)
        return out if backend == "reference" else Capsules(1.001 * out.poses, out.activations)

    monkeypatch.setattr(ROUTERS[name], "route", wrong)
    with pytest.raises(AssertionError, match="result: expected an error of at most"):
        check_twin(name)


def test_the_point_says_how_many_iterations_there_are(monkeypatch):
    made = []
    monkeypatch.setattr(routers, "make_router", lambda options: made.append(options) or make_router(options))
    point = {"batch": 1, "children": 2, "parents": 3}
    layer_tasks("kmeans", "reference", {**point, "iters": 2})
    layer_tasks("self_attention", "reference", point)
    assert made == [{"name": "kmeans", "iters": 2}, {"name": "self_attention"}]
    assert "iters" in CASES["kmeans"].points[0]
    assert "iters" not in CASES["self_attention"].points[0]


@pytest.fixture
def added(monkeypatch) -> Case:
    """A router of one's own without a twin, entered in one line."""

    class Plain(ROUTERS["kmeans"]):
        route = Router.route

    monkeypatch.setattr(CASES, "_items", dict(CASES._items))
    monkeypatch.setattr(ROUTERS, "_items", {**ROUTERS._items, "plain": Plain})
    add_router("plain", "a plain routing", 4)
    return CASES["plain"]


def test_without_a_twin_there_is_the_reference_alone(added: Case):
    assert [contender.name for contender in added.contenders] == ["reference"]
    assert added.contender("reference").needs(DIGIT_CAPS) == 4 * vote_bytes(DIGIT_CAPS)
    added.check()


def test_what_is_fused_needs_no_room_for_votes_unless_it_is_missing(monkeypatch):
    fused = CASES["kmeans"].contender("fused")
    monkeypatch.setattr(routers, "choose", lambda *args: "cpu")
    assert fused.needs(DIGIT_CAPS) == 0
    monkeypatch.setattr(routers, "choose", lambda *args: "reference")
    assert fused.needs(DIGIT_CAPS) == CASES["kmeans"].contender("reference").needs(DIGIT_CAPS)
