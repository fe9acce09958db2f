from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score, roc_curve

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.evaluation import Rejection, detection, novelty, novelty_of_data
from torchcaps.models import ImageModel


def test_scores_of_a_capsule_network_by_hand(model: ImageModel, digits: ImageDataset) -> None:
    images = to_float(digits.batch(torch.arange(5)).images)
    with torch.no_grad():
        scores, capsules = novelty(model, images), model(images)
        decoded = model.decode(capsules, capsules.activations.argmax(dim=1))
    assert set(scores) == {"activation", "reconstruction"}
    assert torch.equal(scores["activation"], -capsules.activations.amax(dim=1))
    for number in range(5):
        expected = np.mean((decoded[number] - images[number]).numpy() ** 2)
        assert float(scores["reconstruction"][number]) == pytest.approx(expected, rel=1e-5)


def test_scores_of_a_network_without_capsules_by_hand(cnn: ImageModel, digits: ImageDataset) -> None:
    images = to_float(digits.batch(torch.arange(5)).images)
    with torch.no_grad():
        scores, outputs = novelty(cnn, images), cnn(images).poses.squeeze(-1)
    assert set(scores) == {"activation", "energy"}
    assert torch.allclose(scores["activation"], -outputs.softmax(dim=1).amax(dim=1))
    assert torch.allclose(scores["energy"], -outputs.exp().sum(dim=1).log(), atol=1e-5)


def test_scores_of_a_data_set_are_those_of_its_batches(model: ImageModel, digits: ImageDataset) -> None:
    some, all_at_once = (novelty_of_data(model, digits, batch_size=size) for size in (7, 1000))
    for name, scores in some.items():
        torch.testing.assert_close(scores, all_at_once[name])
    with raises_about(ConfigError, "data", "got 0"):
        novelty_of_data(model, digits.subset([]))
    with raises_about(ConfigError, "model", "TransformingAutoencoder"):
        novelty(create_model("transforming_autoencoder"), torch.rand(1, 1, 28, 28))


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_thresholds_reject_at_most_the_stated_share(rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = {name: torch.rand(400, generator=generator) for name in ("activation", "reconstruction")}
    found = Rejection.fit(scores, rate)
    rows = [{name: float(score[n]) for name, score in scores.items()} for n in range(400)]
    rejected = sum(found.reason(row) is not None for row in rows)
    assert 0.8 * rate * 400 <= rejected <= rate * 400
    for name, score in scores.items():
        assert int((score > found.thresholds[name]).sum()) == pytest.approx(rate / 2 * 400, abs=1)


def test_reason_names_score_value_and_threshold() -> None:
    found = Rejection({"activation": -0.6, "reconstruction": 0.05}, 0.05, 800)
    assert found.reason({"activation": -0.9, "reconstruction": 0.02}) is None
    reason = found.reason({"activation": -0.31, "reconstruction": 0.02})
    assert reason is not None
    assert "activation is 0.31, below 0.6" in reason
    reason = found.reason({"activation": -0.9, "reconstruction": 0.2})
    assert reason is not None
    assert "reconstruction is 0.2, above 0.05" in reason
    assert "800" in reason


def test_thresholds_come_back_from_json() -> None:
    found = Rejection({"activation": -0.6}, 0.05, 800)
    assert Rejection.from_json(json.loads(json.dumps(found.to_json()))) == found
    for damaged in ({}, {"thresholds": [1]}, {"thresholds": {"energy": "x"}, "rate": 0.1, "count": 3}):
        with raises_about(CheckpointError, "rejection", damaged):
            Rejection.from_json(damaged)


def test_thresholds_reject_bad_input() -> None:
    with raises_about(ConfigError, "rate", "1.5"):
        Rejection.fit({"activation": torch.rand(3)}, 1.5)
    for scores in (torch.rand(0), torch.tensor([float("nan")])):
        with raises_about(ConfigError, "scores"):
            Rejection.fit({"activation": scores})


def test_detection_gives_no_nan() -> None:
    for known, new in (([0.1, torch.nan], [0.3]), ([0.1], [torch.inf]), ([], [0.3])):
        with raises_about(ConfigError, "scores", f"got {len(known)} and {len(new)}"):
            detection(torch.tensor(known), torch.tensor(new))


def test_detection_is_that_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    known = torch.randn(300, generator=generator, dtype=torch.float64)
    new = torch.randn(200, generator=generator, dtype=torch.float64) + 1.5
    area, accepted = detection(known, new)
    truth, scores = np.r_[np.zeros(300), np.ones(200)], torch.cat([known, new]).numpy()
    assert area == pytest.approx(roc_auc_score(truth, scores))
    # With known images as positives: the false positive rate at the first threshold with a true positive rate of 95 %.
    false, true, _ = roc_curve(1 - truth, -scores, drop_intermediate=False)
    assert accepted == pytest.approx(false[np.argmax(true >= 0.95)], abs=0.011)
