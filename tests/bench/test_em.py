from __future__ import annotations

import pytest
import torch

from torchcaps.bench import CASES, em
from torchcaps.bench.em import LAYER, check_kernel, make_children, training_step, vote_bytes
from torchcaps.models import create_model
from torchcaps.nn import CapsConv2d, EMRouting
from torchcaps.types import Capsules

POINT = {"batch": 2, "types": 2, "parents": 3, "grid": 5, "iters": 2}


@pytest.mark.parametrize("candidate", CASES["em"].candidates, ids=lambda candidate: candidate.name)
def test_every_candidate_runs(candidate):
    tasks = candidate.prepare(POINT)
    assert list(tasks) == ["forward", "forward+backward"]
    for call in tasks.values():
        call()


def test_wrong_kernel_is_found(monkeypatch):
    check_kernel()
    right = EMRouting.route_conv

    def wrong(self, children, weight, window, *, backend="auto"):
        out = right(self, children, weight, window, backend=backend)
        return out if backend == "reference" else Capsules(1.001 * out.poses, out.activations)

    monkeypatch.setattr(EMRouting, "route_conv", wrong)
    with pytest.raises(AssertionError, match=r"^result: "):
        check_kernel()


def test_vote_bytes():
    layer = CapsConv2d(8, 16, 3, 2)
    children = make_children({**LAYER, "batch": 1})
    window = layer.window(children)
    votes = window.votes(window.gather(children).poses, layer.weight)
    assert 32 * votes.nbytes == vote_bytes(LAYER)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_training_step(backend, monkeypatch):
    made = []
    monkeypatch.setattr(
        em, "create_model", lambda *args, **options: made.append(create_model(*args, **options)) or made[0]
    )
    step = training_step("matrix_capsnet_small", backend, {"batch": 1, "iters": 1})["step"]
    before = made[0].lower.weight.clone()
    step()
    assert not torch.equal(made[0].lower.weight, before)
    assert made[0].lower.backend == backend
