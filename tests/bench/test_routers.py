from __future__ import annotations

import pytest

from torchcaps.bench import CASES, Case, routers
from torchcaps.bench._layer import DIGIT_CAPS, vote_bytes
from torchcaps.bench.routers import add_router, check_kernel, layer_tasks
from torchcaps.nn import ROUTERS, Router, make_router
from torchcaps.ops import ROUTINGS
from torchcaps.types import Capsules

NAMES = [name for name in CASES if name in ROUTERS and name not in ("dynamic", "em")]


def test_every_router_has_a_benchmark():
    assert set(ROUTERS) <= set(CASES)
    for name in ROUTERS:
        names = [candidate.name for candidate in CASES[name].candidates]
        assert "reference" in names
        assert ("fused" in names) == any(kernel.backend == "cpu" and kernel.dense for kernel in ROUTINGS[name].kernels)
        assert {"recompute", "reference"} <= {candidate.name for candidate in CASES[f"conv_{name}"].candidates}


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_runs(name: str):
    case = CASES[name]
    point = {**case.points[0], "batch": 2, "children": 9, "tokens": 9, "parents": 3}
    for candidate in case.candidates:
        tasks = candidate.prepare(point)
        assert list(tasks) == ["forward", "forward+backward"]
        for call in tasks.values():
            call()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_kernel_is_found(name: str, monkeypatch):
    monkeypatch.setattr(routers, "CHECKED", [(3, 7, 5, 3, 6)])
    check_kernel(name)
    right = ROUTERS[name].route

    def wrong(self, children, weight, *, backend="auto", **options):
        out = right(self, children, weight, backend=backend, **options)
        return out if backend == "reference" else Capsules(1.001 * out.poses, out.activations)

    monkeypatch.setattr(ROUTERS[name], "route", wrong)
    with pytest.raises(AssertionError, match=r"^result: "):
        check_kernel(name)


def test_iterations_of_a_point(monkeypatch):
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
    """A router without kernel, registered in one line."""

    class Plain(ROUTERS["kmeans"]):
        route = Router.route

    monkeypatch.setattr(CASES, "_items", dict(CASES._items))
    monkeypatch.setattr(ROUTERS, "_items", {**ROUTERS._items, "plain": Plain})
    add_router("plain", "a plain routing", 4)
    return CASES["plain"]


def test_router_without_kernel(added: Case):
    assert [candidate.name for candidate in added.candidates] == ["recompute", "reference"]
    assert added.candidate("reference").memory_needed(DIGIT_CAPS) == 4 * vote_bytes(DIGIT_CAPS)
    added.check()


def test_memory_needed():
    case = CASES["kmeans"]
    assert (
        case.candidate("fused").memory_needed(DIGIT_CAPS) == case.candidate("recompute").memory_needed(DIGIT_CAPS) == 0
    )
    assert case.candidate("reference").memory_needed(DIGIT_CAPS) >= vote_bytes(DIGIT_CAPS)
