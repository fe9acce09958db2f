from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn import metrics as sk

from raising import raises_about
from torchcaps.data import ImageDataset, InMemoryDataset
from torchcaps.errors import ConfigError
from torchcaps.evaluation import Evaluation, compare_evaluations, evaluate, mcnemar
from torchcaps.models import ImageModel


def predicting(digits: ImageDataset, correct: torch.Tensor) -> Evaluation:
    """An evaluation that is correct on these images and predicts the next class on the others."""
    labels = torch.arange(len(correct)) % 10
    images = torch.zeros(len(correct), 1, 4, 4, dtype=torch.uint8)
    data = InMemoryDataset("made", "test", images, labels, digits.class_names, "tests")
    predicted = torch.where(correct, labels, (labels + 1) % 10)
    activations = torch.nn.functional.one_hot(predicted, 10) * 0.8 + 0.1
    return Evaluation(data, activations, labels, torch.zeros(10, 10), 0.0)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 5), (5, 1), (30, 30), (40, 71), (1200, 1301)])
def test_mcnemar_is_the_binomial_test_of_scipy(first: int, second: int) -> None:
    expected = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)


def test_difference_is_found_and_named(digits: ImageDataset) -> None:
    numbers = torch.arange(400)
    found = compare_evaluations(predicting(digits, numbers % 4 > 0), predicting(digits, numbers % 10 > 0))
    # Multiples of 20 are wrong in both, the other multiples of 4 only in the first, and those of 10 in the second.
    assert (found.count, found.only_first, found.only_second) == (400, 20, 80)
    assert found.p_value == pytest.approx(binomtest(20, 100).pvalue)
    difference = found.metrics["accuracy"]
    assert (difference.first, difference.second, difference.difference) == pytest.approx((0.75, 0.9, 0.15))
    assert difference.interval is not None
    # The standard error of a paired difference: sqrt((b + c) / n - d^2) / sqrt(n).
    half = 1.96 * np.sqrt((100 / 400 - 0.15**2) / 400)
    assert difference.interval == pytest.approx((0.15 - half, 0.15 + half), abs=0.01)
    assert found.verdict("A", "B").endswith("B is better.")
    assert "+15.00 points" in found.verdict()


def test_paired_bootstrap_is_that_of_numpy_and_scikit_learn(digits: ImageDataset) -> None:
    generator = torch.Generator().manual_seed(3)
    base = torch.rand(150, 10, generator=generator)
    labels = torch.arange(150) % 10
    images = torch.zeros(150, 1, 4, 4, dtype=torch.uint8)
    data = InMemoryDataset("made", "test", images, labels, digits.class_names, "tests")
    shown = torch.nn.functional.one_hot(labels, 10)
    scores = [(base + weight * shown) / 3 for weight in (0.4, 0.7)]
    first, second = (Evaluation(data, each, labels, torch.zeros(10, 10), 0.0) for each in scores)
    found = compare_evaluations(first, second).metrics
    shares = [(each / each.sum(dim=1, keepdim=True)).double().numpy() for each in scores]
    random = np.random.default_rng(0)
    samples: dict[str, list[float]] = {"f1_macro": [], "roc_auc": []}
    for _ in range(400):
        drawn = random.integers(150, size=150)
        true = labels.numpy()[drawn]
        # The same images for both networks.
        f1 = [sk.f1_score(true, share[drawn].argmax(axis=1), average="macro") for share in shares]
        area = [sk.roc_auc_score(true, share[drawn], multi_class="ovr") for share in shares]
        samples["f1_macro"].append(f1[1] - f1[0])
        samples["roc_auc"].append(area[1] - area[0])
    for name, drawn in samples.items():
        interval, difference = found[name].interval, found[name].difference
        assert interval is not None
        assert difference is not None
        width = interval[1] - interval[0]
        assert interval == pytest.approx(tuple(np.percentile(drawn, [2.5, 97.5])), abs=0.2 * width)
        # Intervals of unpaired differences are wider than this.
        assert interval[0] < difference < interval[1]


def test_chance_is_called_chance(digits: ImageDataset) -> None:
    numbers = torch.arange(100)
    found = compare_evaluations(predicting(digits, numbers > 10), predicting(digits, numbers % 50 > 3))
    assert found.verdict("A", "B").endswith("the difference may be chance.")
    same = predicting(digits, numbers > 10)
    assert compare_evaluations(same, same).verdict("A", "B").startswith("No difference: A and B")
    assert compare_evaluations(same, same).to_json()["metrics"]["f1_macro"]["difference"] == 0.0


def test_other_images_are_refused(model: ImageModel, digits: ImageDataset) -> None:
    found = evaluate(model, digits)
    with raises_about(ConfigError, "second", "59 images"):
        compare_evaluations(found, evaluate(model, digits.subset(range(59))))
    with raises_about(ConfigError, "second", "60 images"):
        compare_evaluations(found, dataclasses.replace(found, labels=found.labels.flip(0)))
    with raises_about(ConfigError, "second", "objective"):
        compare_evaluations(found, dataclasses.replace(found, loss=1.0))
