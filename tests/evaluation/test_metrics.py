from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from sklearn import metrics as sk
from torch import Tensor
from torchmetrics.functional import classification as tm

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.evaluation import compute_metrics
from torchcaps.evaluation.intervals import bootstrap_weights, percentiles, wilson
from torchcaps.evaluation.metrics import NAMES
from torchcaps.nn import log_probabilities

NAMES_OF_CLASSES = ["a", "b", "c", "d", "e", "f"]
TEMPERATURE = 0.6


@pytest.fixture(scope="module")
def activations() -> Tensor:
    # Rounded, so that there are ties.
    return (torch.rand(240, 6, generator=torch.Generator().manual_seed(0)) * 40).round() / 40 + 0.001


@pytest.fixture(scope="module")
def labels(activations: Tensor) -> Tensor:
    """Labels that are often, but not always, the most active class; no class is missing, and none has equal counts."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.multinomial(activations**4 * torch.tensor([1.0, 2, 3, 4, 5, 6]), 1, generator=generator)
    return drawn.squeeze(1)


def by_scikit(activations: Tensor, labels: Tensor) -> dict[str, float]:
    probabilities = log_probabilities(activations.double(), TEMPERATURE).exp()
    true, predicted, p = labels.numpy(), activations.argmax(dim=1).numpy(), probabilities.numpy()
    hot = np.eye(6)[true]
    found = {
        "accuracy": sk.accuracy_score(true, predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(true, predicted),
        "kappa": sk.cohen_kappa_score(true, predicted),
        "mcc": sk.matthews_corrcoef(true, predicted),
        "roc_auc": sk.roc_auc_score(true, p, multi_class="ovr", average="macro"),
        "average_precision": sk.average_precision_score(hot, p, average="macro"),
        "top_3_accuracy": sk.top_k_accuracy_score(true, activations.numpy() - 1e-6 * np.arange(6), k=3),
        "top_5_accuracy": sk.top_k_accuracy_score(true, activations.numpy() - 1e-6 * np.arange(6), k=5),
        "log_loss": sk.log_loss(true, p),
        "brier": float(((p - hot) ** 2).sum(axis=1).mean()),
        "ece": float(tm.multiclass_calibration_error(probabilities, labels, 6, n_bins=15)),
    }
    for average in ("macro", "weighted"):
        values = sk.precision_recall_fscore_support(true, predicted, average=average)
        found |= dict(zip((f"{name}_{average}" for name in ("precision", "recall", "f1")), values, strict=False))
    return found


def test_metrics_match_scikit_learn_and_torchmetrics(activations: Tensor, labels: Tensor) -> None:
    # Ties of the k-th place are broken by the order of the classes on both sides.
    distinct = activations - 1e-6 * torch.arange(6)
    found = compute_metrics(distinct, labels, NAMES_OF_CLASSES, temperature=TEMPERATURE, resamples=20)
    expected = by_scikit(distinct, labels)
    assert set(found.values) == set(expected) == set(NAMES) - {"hamming_loss"}
    assert {name: metric.value for name, metric in found.values.items()} == pytest.approx(expected, abs=1e-6)
    assert found.majority == pytest.approx(labels.bincount().max().item() / 240)
    plain = log_probabilities(distinct.double())
    assert found.uncalibrated["log_loss"] == pytest.approx(sk.log_loss(labels.numpy(), plain.exp().numpy()))
    assert found.uncalibrated["ece"] == pytest.approx(
        float(tm.multiclass_calibration_error(plain.exp(), labels, 6, n_bins=15)), abs=1e-6
    )
    assert found.notes == ()


def test_ranks_with_ties_match_scikit_learn(activations: Tensor, labels: Tensor) -> None:
    pairs = torch.stack([labels, (labels + 1) % 6], dim=1)
    found = compute_metrics(activations, pairs, NAMES_OF_CLASSES, resamples=1)
    for j, row in enumerate(found.per_class):
        present = (pairs == j).any(dim=1).numpy()
        assert row.roc_auc == pytest.approx(sk.roc_auc_score(present, activations[:, j].numpy()))
        assert row.average_precision == pytest.approx(sk.average_precision_score(present, activations[:, j].numpy()))


def test_each_class_against_scikit_learn(activations: Tensor, labels: Tensor) -> None:
    rows = compute_metrics(activations, labels, NAMES_OF_CLASSES, resamples=1).per_class
    predicted = activations.argmax(dim=1).numpy()
    expected = np.array(sk.precision_recall_fscore_support(labels.numpy(), predicted))
    for j, row in enumerate(rows):
        assert (row.precision, row.recall, row.f1, row.support) == pytest.approx(tuple(expected[:, j]))
        assert row.predicted == (predicted == j).sum()


def test_pairs_of_labels_against_scikit_learn(activations: Tensor, labels: Tensor) -> None:
    pairs = torch.stack([labels, (labels + 1 + torch.arange(240) % 4) % 6], dim=1)
    found = compute_metrics(activations, pairs, NAMES_OF_CLASSES, resamples=20)
    true = np.zeros((240, 6), dtype=int)
    np.put_along_axis(true, pairs.numpy(), 1, axis=1)
    predicted = np.zeros((240, 6), dtype=int)
    np.put_along_axis(predicted, activations.topk(2, dim=1).indices.numpy(), 1, axis=1)
    expected = {
        "accuracy": sk.accuracy_score(true, predicted),
        "hamming_loss": sk.hamming_loss(true, predicted),
        "roc_auc": sk.roc_auc_score(true, activations.numpy(), average="macro"),
        "average_precision": sk.average_precision_score(true, activations.numpy(), average="macro"),
    }
    for average in ("macro", "weighted"):
        values = sk.precision_recall_fscore_support(true, predicted, average=average)
        expected |= dict(zip((f"{name}_{average}" for name in ("precision", "recall", "f1")), values, strict=False))
    assert {name: metric.value for name, metric in found.values.items()} == pytest.approx(expected)
    assert found.majority is None
    assert "one label per image" in " ".join(found.notes)


def test_class_without_images_is_not_averaged(activations: Tensor, labels: Tensor) -> None:
    kept = labels != 2
    found = compute_metrics(activations[kept], labels[kept], NAMES_OF_CLASSES, temperature=1.0, resamples=50)
    row = found.per_class[2]
    assert (row.support, row.precision, row.recall, row.f1, row.roc_auc, row.average_precision) == (0, *[None] * 5)
    true, predicted = labels[kept].numpy(), activations[kept].argmax(dim=1).numpy()
    expected = sk.f1_score(true, predicted, labels=[0, 1, 3, 4, 5], average="macro")
    assert found.values["f1_macro"].value == pytest.approx(expected)
    assert any("No test images of c" in note for note in found.notes)


@pytest.mark.parametrize("single", [True, False])
def test_one_class_or_image_gives_no_nan(single: bool) -> None:
    labels = torch.zeros(1 if single else 5, dtype=torch.int64)
    activations = torch.tensor([[0.9, 0.2, 0.1]]).repeat(len(labels), 1)
    found = compute_metrics(activations, labels, ["a", "b", "c"], resamples=30)
    assert found.values["accuracy"].value == 1.0
    assert found.values["kappa"].value is None
    assert found.values["roc_auc"].value is None
    assert any("kappa" in note and "ROC-AUC" in note for note in found.notes)
    assert any("b, c" in note for note in found.notes)
    assert any("not calibrated" in note for note in found.notes)
    json.dumps(found.to_json(), allow_nan=False)


def test_never_predicted_class_is_named() -> None:
    activations = torch.tensor([[0.9, 0.2], [0.8, 0.1]])
    found = compute_metrics(activations, torch.tensor([0, 1]), ["a", "b"], temperature=1.0, resamples=10)
    assert found.per_class[1].precision == 0.0
    assert "Never predicted: b." in found.notes


def test_class_that_is_only_predicted_wrongly_is_named() -> None:
    activations = torch.tensor([[0.1, 0.9], [0.8, 0.1]])
    found = compute_metrics(activations, torch.tensor([0, 1]), ["a", "b"], temperature=1.0, resamples=10)
    assert "Never found, predicted for images of other classes only: a, b." in found.notes


def test_non_finite_activations_give_no_nan() -> None:
    found = compute_metrics(torch.full((4, 3), torch.nan), torch.tensor([0, 1, 2, 0]), ["a", "b", "c"], resamples=5)
    assert found.values["log_loss"].value is None
    json.dumps(found.to_json(), allow_nan=False)


def test_metrics_reject_no_images() -> None:
    with raises_about(ConfigError, "labels", "got 0"):
        compute_metrics(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), ["a", "b", "c"])


@pytest.mark.parametrize(("successes", "count"), [(0, 7), (7, 7), (23, 59), (9971, 10000)])
def test_wilson_interval_matches_scipy(successes: int, count: int) -> None:
    expected = binomtest(successes, count).proportion_ci(method="wilson")
    assert wilson(successes, count) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_wilson_rejects_no_cases() -> None:
    with raises_about(ConfigError, "successes", "0 of 0"):
        wilson(0, 0)


def test_bootstrap_draws_as_many_images_as_there_are() -> None:
    weights = torch.cat(list(bootstrap_weights(30, 500, seed=3)))
    assert weights.shape == (500, 30)
    assert (weights.sum(dim=1) == 30).all()
    # The mean of n draws from 0/1 has the variance p (1 - p) / n.
    share = weights @ (torch.arange(30) < 12).double() / 30
    assert float(share.std()) == pytest.approx((0.4 * 0.6 / 30) ** 0.5, rel=0.1)
    assert torch.equal(weights, torch.cat(list(bootstrap_weights(30, 500, seed=3))))


def test_interval_matches_plain_bootstrap(activations: Tensor, labels: Tensor) -> None:
    found = compute_metrics(activations, labels, NAMES_OF_CLASSES, temperature=TEMPERATURE)
    predicted, generator = activations.argmax(dim=1).numpy(), np.random.default_rng(0)
    scores = []
    for _ in range(1000):
        drawn = generator.integers(0, 240, 240)
        scores.append(sk.f1_score(labels.numpy()[drawn], predicted[drawn], average="macro"))
    assert found.values["f1_macro"].interval == pytest.approx(np.quantile(scores, [0.025, 0.975]), abs=0.012)
    for metric in found.values.values():
        assert metric.value is not None
        assert metric.interval is not None
        # The calibration error of a sample is biased upwards.
        assert metric.interval[0] - 0.05 <= metric.value <= metric.interval[1]


def test_percentiles_without_a_value_are_none() -> None:
    assert percentiles(torch.full((3,), torch.nan)) is None
