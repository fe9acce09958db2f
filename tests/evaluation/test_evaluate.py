from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import Batch, GeneratedDataset, ImageDataset, InMemoryDataset
from torchcaps.errors import ConfigError
from torchcaps.evaluation import evaluate
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


class Reader(ImageModel):
    """Predicts the class that the first pixel encodes; its one parameter gives it a device."""

    def __init__(self) -> None:
        super().__init__((1, 2, 2), 3)
        self.here = torch.nn.Parameter(torch.zeros(()))
        self.modes: list[bool] = []

    def forward(self, images: Tensor) -> Capsules:
        self.modes.append(self.training)
        written = (images[:, 0, 0, 0] * 255).round().long()
        activations = torch.nn.functional.one_hot(written, 3).float()
        return Capsules(activations.unsqueeze(-1), activations)


def written(classes: list[int], labels: list[int]) -> ImageDataset:
    images = torch.zeros(len(classes), 1, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.tensor(classes, dtype=torch.uint8)
    return InMemoryDataset.from_arrays(
        images.numpy(), labels, class_names=["a", "b", "c"], name="written", split="test"
    )


def test_rows_are_true_classes_and_columns_predictions() -> None:
    result = evaluate(Reader(), written([0, 1, 1, 0], [0, 0, 1, 1]), batch_size=3)
    assert result.confusion.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert result.predictions.tolist() == [0, 1, 1, 0]
    assert result.correct.tolist() == [True, False, True, False]
    assert (result.count, result.accuracy, result.error) == (4, 0.5, 0.5)
    assert result.per_class == {"a": 0.5, "b": 0.5, "c": None}


def test_summary_is_json() -> None:
    summary = evaluate(Reader(), written([0, 2], [0, 1])).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["data"] == "written"
    assert summary["split"] == "test"
    assert summary["confusion"] == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("name", ["capsnet_small", "cnn_small"])
def test_batch_size_does_not_matter(name: str, digits: ImageDataset) -> None:
    model = create_model(name)
    one, all_at_once = evaluate(model, digits, batch_size=7), evaluate(model, digits, batch_size=1000)
    torch.testing.assert_close(one.activations, all_at_once.activations)
    assert one.activations.shape == (60, 10)


def test_eval_mode_is_used_and_restored() -> None:
    model = Reader().train()
    evaluate(model, written([0], [0]))
    assert model.modes == [False]
    assert model.training


def test_no_gradient_is_kept(digits: ImageDataset) -> None:
    assert not evaluate(create_model("cnn_small"), digits).activations.requires_grad


def test_progress_after_every_batch() -> None:
    seen: list[tuple[int, int]] = []
    evaluate(Reader(), written([0, 1, 2], [0, 1, 2]), batch_size=2, progress=lambda *done: seen.append(done))
    assert seen == [(2, 3), (3, 3)]


def test_errors_name_the_argument(digits: ImageDataset) -> None:
    with raises_about(ConfigError, "batch_size", 0):
        evaluate(Reader(), written([0], [0]), batch_size=0)
    with raises_about(ConfigError, "data", "digits", "test"):
        evaluate(Reader(), digits.subset([]))
    with raises_about(ConfigError, "data", 3, 10):
        evaluate(Reader(), digits)


def test_crops_are_averaged() -> None:
    images = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    # The centre crop begins at (1, 1); one up and left of it another class is written.
    images[0, 0, 1, 1], images[0, 0, 0, 0] = 1, 2
    data = InMemoryDataset.from_arrays(images.numpy(), [1], class_names=["a", "b", "c"], name="written", split="test")
    assert evaluate(Reader(), data, crops=[(0, 0)]).activations.tolist() == [[0, 1, 0]]
    assert evaluate(Reader(), data, crops=[(0, 0), (-1, -1)]).activations.tolist() == [[0, 0.5, 0.5]]


class FixedActivations(ImageModel):
    """Returns the given activations, image after image."""

    def __init__(self, activations: list[list[float]]) -> None:
        super().__init__((1, 2, 2), len(activations[0]))
        self.here = torch.nn.Parameter(torch.zeros(()))
        self.activations = iter(torch.tensor(activations))

    def forward(self, images: Tensor) -> Capsules:
        activations = torch.stack([next(self.activations) for _ in images])
        return Capsules(activations.unsqueeze(-1), activations)


def pairs(labels: list[list[int]]) -> GeneratedDataset:
    def draw(numbers: Tensor) -> Batch:
        images = torch.zeros(len(numbers), 1, 2, 2, dtype=torch.uint8)
        return Batch(images, torch.tensor(labels)[numbers], None, {})

    return GeneratedDataset("pairs", "test", tuple("abcd"), "made up", len(labels), draw)


def test_two_labels_must_both_be_found() -> None:
    model = FixedActivations([[0.9, 0.8, 0, 0], [0.8, 0, 0.9, 0], [0, 0, 0.9, 0.8], [0, 0.8, 0.9, 0]])
    result = evaluate(model, pairs([[0, 1], [0, 1], [1, 0], [2, 1]]))
    assert result.correct.tolist() == [True, False, False, True]
    assert result.predictions.tolist() == [[0, 1], [2, 0], [2, 3], [2, 1]]
    # Found classes are on the diagonal; a missed class counts in the column of the wrong prediction.
    assert result.confusion.tolist() == [[2, 0, 1, 0], [0, 2, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert result.accuracy == 0.5
    assert result.per_class == {"a": 2 / 3, "b": 0.5, "c": 1.0, "d": None}


def test_model_without_classes_has_loss_only(digits: ImageDataset) -> None:
    torch.manual_seed(0)
    model = create_model("transforming_autoencoder")
    evaluation = evaluate(model, digits)
    assert evaluation.loss == evaluate(model, digits).loss
    assert evaluation.activations.shape == (len(digits), 30)
    assert evaluation.headline == f"loss {evaluation.loss:.4g}"
    assert set(evaluation.summary()) == {"data", "split", "count", "loss", "seconds"}
    with raises_about(ConfigError, "accuracy"):
        _ = evaluation.accuracy
