from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.bench import CASES
from torchcaps.bench.backbone import AUGMENT
from torchcaps.train.folder_recipe import augment_choices

CASE = CASES["backbone"]
POINT = {"batch": 4, "side": 64, "layers": 8}


@pytest.mark.parametrize("candidate", CASE.candidates, ids=lambda candidate: candidate.name)
def test_every_candidate_repeats(candidate):
    tasks = candidate.prepare(POINT)
    assert list(tasks) == ["step"]
    tasks["step"]()
    tasks["step"]()


def test_batches_are_those_of_the_step():
    task: Any = CASE.candidate("batch of JPEG files, augmented").prepare(POINT)["step"]
    (first, labels), (second, _) = task(), task()
    assert first.shape == (4, 3, 64, 64)
    assert len(labels) == 4
    assert not torch.equal(first, second)


def test_augmentation_is_that_of_a_folder():
    chosen = {
        choice.key.removeprefix("data.augment."): choice.value for choice in augment_choices(3, None, square=True)
    }
    assert {key: getattr(AUGMENT, key) for key in chosen} == chosen
