from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torchcaps.data import ImageDataset
from torchcaps.evaluation import evaluate, load_evaluation, save_evaluation
from torchcaps.evaluation.storage import PREDICTIONS, SUMMARY
from torchcaps.models import ImageModel, create_model


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(b"abc")
    return tmp_path / "weights"


@pytest.mark.parametrize("name", ["cnn_small", "transforming_autoencoder"])
def test_round_trip(tmp_path: Path, weights: Path, digits: ImageDataset, name: str) -> None:
    evaluation = evaluate(create_model(name), digits)
    save_evaluation(evaluation, tmp_path, weights=weights)
    loaded = load_evaluation(tmp_path, digits, weights=weights)
    assert loaded is not None
    assert torch.equal(loaded.activations, evaluation.activations)
    assert torch.equal(loaded.labels, evaluation.labels)
    assert torch.equal(loaded.confusion, evaluation.confusion)
    assert loaded.loss == evaluation.loss
    assert loaded.headline == evaluation.headline


def test_other_weights_or_data(tmp_path: Path, weights: Path, digits: ImageDataset, cnn: ImageModel) -> None:
    assert load_evaluation(tmp_path, digits, weights=weights) is None
    save_evaluation(evaluate(cnn, digits), tmp_path, weights=weights)
    assert load_evaluation(tmp_path, digits.subset(range(3)), weights=weights) is None
    weights.write_bytes(b"abd")
    assert load_evaluation(tmp_path, digits, weights=weights) is None


@pytest.mark.parametrize("name", [SUMMARY, PREDICTIONS])
@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000])
def test_damaged_files(tmp_path: Path, digits: ImageDataset, cnn: ImageModel, name: str, content: str) -> None:
    save_evaluation(evaluate(cnn, digits), tmp_path)
    (tmp_path / name).write_text(content)
    assert load_evaluation(tmp_path, digits) is None


def test_summary_is_json(tmp_path: Path, digits: ImageDataset, cnn: ImageModel) -> None:
    evaluation = evaluate(cnn, digits)
    save_evaluation(evaluation, tmp_path)
    assert json.loads((tmp_path / SUMMARY).read_text())["accuracy"] == evaluation.accuracy
