from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.bench import CASES
from torchcaps.bench.loading import check_batches

CASE = CASES["loading"]


@pytest.mark.parametrize("candidate", CASE.candidates, ids=lambda candidate: candidate.name)
def test_every_candidate_repeats(candidate):
    tasks = candidate.prepare({"batch": 4})
    assert list(tasks) == ["batch"]
    tasks["batch"]()
    tasks["batch"]()


def test_every_round_loads_a_new_batch():
    for candidate in CASE.candidates[:3]:
        task: Any = candidate.prepare({"batch": 4})["batch"]
        first, second = task(), task()
        assert first[0].shape[0] == 4
        assert not torch.equal(first[0], second[0])


def test_passes_follow_each_other():
    task: Any = CASE.candidates[0].prepare({"batch": 1000})["batch"]
    assert all(len(task()[1]) == 1000 for _ in range(9))


def test_batch_dependent_sample_is_found(monkeypatch):
    check_batches()
    drawn = torch.Tensor.minimum
    monkeypatch.setattr(torch.Tensor, "minimum", lambda one, other: drawn(one, other) // len(one))
    with pytest.raises(AssertionError, match="sample 0 differs"):
        check_batches()
