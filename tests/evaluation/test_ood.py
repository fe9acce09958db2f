from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, InMemoryDataset
from torchcaps.errors import ConfigError, DataError
from torchcaps.evaluation import PROTOCOLS, by_novelty, detection, novelty_of_data
from torchcaps.models import ImageModel, create_model


@pytest.fixture(scope="module")
def noise(digits: ImageDataset) -> ImageDataset:
    images = torch.randint(256, (60, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return InMemoryDataset("noise", "test", images, torch.zeros(60, dtype=torch.int64), digits.class_names, "tests")


def test_one_row_per_score_and_data_set(model: ImageModel, digits: ImageDataset, noise: ImageDataset) -> None:
    result = by_novelty(model, digits, [noise, digits])
    assert [row.name for row in result.rows] == [
        f"{name}, {score}" for name in ("noise", "digits") for score in ("activation", "reconstruction")
    ]
    known, new = (novelty_of_data(model, data)["reconstruction"] for data in (digits, noise))
    assert result.rows[1].accuracies == detection(known, new)
    # The same images cannot be separated.
    assert result.rows[3].accuracies[0] == 0.5


def test_reconstruction_recognises_noise(digits: ImageDataset, noise: ImageDataset) -> None:
    trained = create_model("capsnet_small", pretrained="mnist_dynamic")
    rows = {row.name: row.accuracies for row in by_novelty(trained, digits, [noise]).rows}
    assert rows["noise, reconstruction"] == (1.0, 0.0)


def test_data_of_the_same_classes_are_not_new(
    cnn: ImageModel, digits: ImageDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"mnist": digits.class_names, "kmnist": tuple("abcdefghij")}

    def load(name: str, split: str) -> ImageDataset:
        if name not in named:
            raise DataError(f"{name}: expected files, but there are none")
        return InMemoryDataset(name, split, digits.batch(range(8)).images, digits.labels[:8], named[name], "tests")

    class OneRun:
        def load_model(self) -> ImageModel:
            return cnn

        def load_data(self, split: str) -> ImageDataset:
            return digits.renamed("mnist, fold 1 of 5", split)

    monkeypatch.setattr("torchcaps.evaluation.ood.load_data", load)
    rows = PROTOCOLS["ood"](OneRun(), lambda done, total: None).rows
    assert [row.name for row in rows] == ["kmnist, activation", "kmnist, energy"]


def test_no_other_data_are_refused(model: ImageModel, digits: ImageDataset) -> None:
    with raises_about(ConfigError, "others", "(1, 28, 28)"):
        by_novelty(model, digits, [])
    assert "ood" in PROTOCOLS
