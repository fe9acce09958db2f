from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.evaluation import is_correct, predict_labels

ACTIVATIONS = torch.tensor([[0.1, 0.7, 0.9], [0.8, 0.1, 0.9], [0.5, 0.4, 0.3]])


def test_prediction_is_most_active_class():
    assert predict_labels(ACTIVATIONS).tolist() == [2, 2, 0]
    assert predict_labels(ACTIVATIONS, 2).tolist() == [[2, 1], [2, 0], [0, 1]]


def test_both_labels_in_any_order():
    assert is_correct(ACTIVATIONS, torch.tensor([2, 0, 0])).tolist() == [True, False, True]
    labels = torch.tensor([[1, 2], [1, 2], [1, 0]])
    assert is_correct(ACTIVATIONS, labels).tolist() == [True, False, True]


@pytest.mark.parametrize("shape", [(3, 4), (3, 1, 1)])
def test_labels_of_no_use(shape):
    with raises_about(ShapeError, "labels", "(3, "):
        is_correct(ACTIVATIONS, torch.zeros(shape, dtype=torch.int64))
