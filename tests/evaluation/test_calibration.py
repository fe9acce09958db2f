from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import fminbound
from sklearn.calibration import calibration_curve

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.evaluation import fit_temperature, reliability_bins
from torchcaps.nn import log_probabilities


def smoothed_log_loss(activations: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    count, classes = activations.shape
    logs = np.log(activations) / temperature
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    targets = np.full((count, classes), 1 / (count + classes))
    targets[np.arange(count), labels] = (count + 1) / (count + classes)
    return float(-(targets * logs).sum(axis=1).mean())


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_temperature_matches_scipy_minimum(sharpness: float) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(300, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(scores.softmax(dim=-1), 1, generator=generator).squeeze(1)
    activations = (scores * sharpness).softmax(dim=-1)
    found = fit_temperature(activations, labels)
    best = fminbound(lambda log: smoothed_log_loss(activations.numpy(), labels.numpy(), np.exp(log)), -4, 4)
    assert found == pytest.approx(np.exp(best), rel=1e-3)
    # The labels are drawn from the probabilities of sharpness 1.
    assert found == pytest.approx(sharpness, rel=0.25)


def test_temperature_of_perfect_predictions_is_finite() -> None:
    labels = torch.arange(40) % 4
    activations = torch.full((40, 4), 0.2).scatter(1, labels[:, None], 0.8)
    temperature = fit_temperature(activations, labels)
    assert log_probabilities(activations, temperature).exp().max() == pytest.approx(41 / 44, abs=1e-4)


def test_temperature_rejects_bad_input() -> None:
    with raises_about(ShapeError, "labels", "(3, 2)"):
        fit_temperature(torch.rand(3, 4), torch.zeros(3, 2, dtype=torch.int64))
    with raises_about(ConfigError, "activations", "0"):
        fit_temperature(torch.rand(0, 4), torch.zeros(0, dtype=torch.int64))
    with raises_about(ConfigError, "activations", "2"):
        fit_temperature(torch.full((2, 4), float("nan")), torch.zeros(2, dtype=torch.int64))


def test_reliability_bins_match_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(500, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (500,), generator=generator)
    probabilities = scores.softmax(dim=-1)
    bins = reliability_bins(probabilities, labels)
    confidence, predicted = probabilities.max(dim=1)
    share, mean = calibration_curve((predicted == labels).numpy(), confidence.numpy(), n_bins=15)
    assert [row[0] for row in bins] == pytest.approx(mean)
    assert [row[1] for row in bins] == pytest.approx(share)
    assert sum(row[2] for row in bins) == 500
