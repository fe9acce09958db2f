from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchcaps.data import Batch, DrawnData
from torchcaps.eval import Evaluation
from torchcaps.eval._pairs import NEITHER, RIGHT, pair_examples


def said(activations: Tensor, labels: Tensor) -> Evaluation:
    def draw(numbers: Tensor) -> Batch:
        return Batch(torch.zeros(len(numbers), 1, 2, 2, dtype=torch.uint8), labels[numbers], None, {})

    data = DrawnData("pairs", "test", tuple("abcd"), "made up", len(labels), draw)
    return Evaluation(data, activations, labels, torch.zeros(4, 4), 0.0)


def test_right_ones_then_wrong_ones_twice_then_a_capsule_that_is_neither():
    activations = torch.tensor([[0.9, 0.8, 0.1, 0.2], [0.9, 0.1, 0.8, 0.2]])
    places, targets = pair_examples(said(activations, torch.tensor([[0, 1], [0, 1]])))
    assert places.tolist() == [0, 1, 1, 0]
    # The last: label 0 kept, label 1 exchanged for the most active of the others.
    assert targets.tolist() == [[0, 1], [0, 2], [0, 1], [0, 3]]


@pytest.mark.parametrize(("right", "expected"), [(20, RIGHT + NEITHER), (0, 2 * 3 + 3)])
def test_there_may_be_only_right_or_only_wrong_ones(right, expected):
    activations = torch.tensor([[0.9, 0.8, 0.1, 0.2]]).repeat(20, 1)
    labels = torch.tensor([[0, 1]] * right + [[2, 3]] * (20 - right))
    places, targets = pair_examples(said(activations, labels))
    assert len(places) == len(targets) == expected
