from __future__ import annotations

import pytest
import torch

from torchcaps.bench import CASES, dynamic
from torchcaps.bench.dynamic import TEN_GIGABYTES, check_kernel, layer_tasks, vote_bytes
from torchcaps.types import Capsules

POINT = {"batch": 2, "children": 9, "parents": 3, "iters": 2}
CANDIDATES = CASES["dynamic"].candidates


@pytest.mark.parametrize("name", [candidate.name for candidate in CANDIDATES if not candidate.compiled])
def test_every_candidate_runs(name):
    tasks = CASES["dynamic"].candidate(name).prepare(POINT)
    assert list(tasks) == ["forward", "forward+backward"]
    for call in tasks.values():
        call()


def test_tasks():
    seen = []

    def layer(poses, weight, bias, iters):
        seen.append((tuple(poses.shape), tuple(weight.shape), tuple(bias.shape), iters, torch.is_grad_enabled()))
        return (poses.sum() + weight.sum() + bias).expand(2, 3, 16)

    tasks = layer_tasks(layer, POINT)
    tasks["forward"]()
    tasks["forward+backward"]()
    assert seen == [((2, 9, 8), (9, 3, 8, 16), (3, 16), 2, False), ((2, 9, 8), (9, 3, 8, 16), (3, 16), 2, True)]


def test_wrong_kernel_is_found(monkeypatch):
    check_kernel()

    def wrong(children, weight, name, **options):
        poses = 1.001 * dynamic._reference(children.poses, weight, **options)
        return Capsules(poses, poses.norm(dim=-1))

    monkeypatch.setattr(dynamic, "route", wrong)
    with pytest.raises(AssertionError, match=r"^result: "):
        check_kernel()


def test_memory_needed():
    assert vote_bytes(TEN_GIGABYTES) == pytest.approx(10e9, rel=0.01)
    for candidate in CANDIDATES:
        stores = candidate.name not in ("fused", "recompute")
        assert (candidate.memory_needed(TEN_GIGABYTES) >= 4 * vote_bytes(TEN_GIGABYTES)) == stores


def test_every_point_is_compiled(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    monkeypatch.setattr(torch, "compile", lambda layer, dynamic: calls.append(f"dynamic={dynamic}") or layer)
    CASES["dynamic"].candidate("reference, torch.compile").prepare(POINT)["forward+backward"]()
    assert calls == ["reset", "dynamic=False"]


# Inductor itself uses what torch has deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.slow
def test_compiled_reference():
    tasks = CASES["dynamic"].candidate("reference, torch.compile").prepare(POINT)
    for call in tasks.values():
        call()
