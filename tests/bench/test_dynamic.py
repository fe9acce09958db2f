from __future__ import annotations

import pytest
import torch

from torchcaps.bench import CASES, dynamic
from torchcaps.bench.dynamic import TEN_GIGABYTES, check_twin, layer_tasks, vote_bytes

POINT = {"batch": 2, "children": 9, "parents": 3, "iters": 2}
CONTENDERS = CASES["dynamic"].contenders


@pytest.mark.parametrize("name", [contender.name for contender in CONTENDERS if not contender.compiled])
def test_every_contender_does_the_same_work(name):
    tasks = CASES["dynamic"].contender(name).prepare(POINT)
    assert list(tasks) == ["forward", "forward+backward"]
    for call in tasks.values():
        call()


def test_the_tasks_ask_for_the_result_and_for_all_gradients():
    seen = []

    def layer(poses, weight, bias, iters):
        seen.append((tuple(poses.shape), tuple(weight.shape), tuple(bias.shape), iters, torch.is_grad_enabled()))
        return (poses.sum() + weight.sum() + bias).expand(2, 3, 16)

    tasks = layer_tasks(layer, POINT)
    tasks["forward"]()
    tasks["forward+backward"]()
    assert seen == [((2, 9, 8), (9, 3, 8, 16), (3, 16), 2, False), ((2, 9, 8), (9, 3, 8, 16), (3, 16), 2, True)]


def test_the_check_holds_and_finds_a_twin_that_is_wrong(monkeypatch):
    check_twin()
    monkeypatch.setattr(dynamic, "route", lambda *args: 1.001 * dynamic._definition(*args[2:5], **args[5]))
    with pytest.raises(AssertionError, match="result: expected an error of at most"):
        check_twin()


def test_ten_gigabytes_of_votes_fit_only_where_they_are_not_stored(monkeypatch):
    assert vote_bytes(TEN_GIGABYTES) == pytest.approx(10e9, rel=0.01)
    ours, *others = CONTENDERS
    assert all(contender.needs(TEN_GIGABYTES) >= 4 * vote_bytes(TEN_GIGABYTES) for contender in others)
    monkeypatch.setattr(dynamic, "choose", lambda *args: "cpu")
    assert ours.needs(TEN_GIGABYTES) == 0
    monkeypatch.setattr(dynamic, "choose", lambda *args: "torch")
    assert ours.needs(TEN_GIGABYTES) >= 4 * vote_bytes(TEN_GIGABYTES)


def test_every_point_is_compiled_anew(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    monkeypatch.setattr(torch, "compile", lambda layer, dynamic: calls.append(f"dynamic={dynamic}") or layer)
    CASES["dynamic"].contender("reference, torch.compile").prepare(POINT)["forward+backward"]()
    assert calls == ["reset", "dynamic=False"]


# Inductor itself uses what torch has deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")
@pytest.mark.slow
def test_the_compiled_reference_runs():
    tasks = CASES["dynamic"].contender("reference, torch.compile").prepare(POINT)
    for call in tasks.values():
        call()
