from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchcaps.data import Batch, GeneratedDataset, ImageDataset, InMemoryDataset
from torchcaps.evaluation import Evaluation
from torchcaps.report._examples import (
    PAIRS_ABSENT,
    PAIRS_CORRECT,
    class_examples,
    clearest_image,
    pair_examples,
)


def pairs(activations: Tensor, labels: Tensor) -> Evaluation:
    def draw(numbers: Tensor) -> Batch:
        return Batch(torch.zeros(len(numbers), 1, 2, 2, dtype=torch.uint8), labels[numbers], None, {})

    data = GeneratedDataset("pairs", "test", tuple("abcd"), "made up", len(labels), draw)
    return Evaluation(data, activations, labels, torch.zeros(4, 4), 0.0)


def test_pair_examples_order():
    activations = torch.tensor([[0.9, 0.8, 0.1, 0.2], [0.9, 0.1, 0.8, 0.2]])
    places, targets = pair_examples(pairs(activations, torch.tensor([[0, 1], [0, 1]])))
    assert places.tolist() == [0, 1, 1, 0]
    # The last one keeps label 0 and replaces label 1 by the most active other class.
    assert targets.tolist() == [[0, 1], [0, 2], [0, 1], [0, 3]]


@pytest.mark.parametrize(("correct", "expected"), [(20, PAIRS_CORRECT + PAIRS_ABSENT), (0, 2 * 3 + 3)])
def test_pair_examples_all_correct_or_all_wrong(correct, expected):
    activations = torch.tensor([[0.9, 0.8, 0.1, 0.2]]).repeat(20, 1)
    labels = torch.tensor([[0, 1]] * correct + [[2, 3]] * (20 - correct))
    places, targets = pair_examples(pairs(activations, labels))
    assert len(places) == len(targets) == expected


def single(digits: ImageDataset, predictions: list[int], activations: list[float]) -> Evaluation:
    """An evaluation of images with the labels 0, 1, 2, 0, 1, 2, ..."""
    scores = torch.nn.functional.one_hot(torch.tensor(predictions), 10) * torch.tensor(activations)[:, None]
    count = len(activations)
    labels = torch.arange(count) % 3
    data = InMemoryDataset("digits", "test", digits.images[:count], labels, digits.class_names, "tests")
    return Evaluation(data, scores, data.labels, torch.zeros(10, 10, dtype=torch.int64), 0.0)


def test_class_examples_order(digits: ImageDataset) -> None:
    # The second and the last prediction are wrong.
    indices, targets = class_examples(single(digits, [0, 7, 2, 0, 1, 8], [0.9] * 6))
    assert indices.tolist() == [0, 4, 2, 3, 1, 1, 5, 5]
    assert targets.tolist() == [0, 1, 2, 0, 7, 1, 8, 2]


def test_class_examples_all_correct_or_all_wrong(digits: ImageDataset) -> None:
    assert class_examples(single(digits, [0, 1], [0.9] * 2))[0].tolist() == [0, 1]
    assert class_examples(single(digits, [5, 5], [0.9] * 2))[1].tolist() == [5, 0, 5, 1]


def test_clearest_image_prefers_correct_ones(digits: ImageDataset) -> None:
    assert clearest_image(single(digits, [0, 7, 2], [0.3, 0.9, 0.4])) == 2
    assert clearest_image(single(digits, [5, 5, 5], [0.3, 0.9, 0.4])) == 1
