from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps.data import DATASETS, DatasetEntry, GeneratedDataset, ImageDataset, InMemoryDataset, load_data
from torchcaps.errors import ConfigError, DataError
from torchcaps.evaluation import CORRUPTIONS, PROTOCOLS, ProtocolRow, by_corruption, by_overlap, evaluate, transfer
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


class Counts(ImageModel):
    """Calls every other image 0 and 1, and the rest 2 and 3, in the order in which they come."""

    def __init__(self, image_shape: tuple[int, int, int] = (1, 36, 36)) -> None:
        super().__init__(image_shape, 10)
        self.here = torch.nn.Parameter(torch.zeros(()))
        self.count = 0

    def forward(self, images: Tensor) -> Capsules:
        first = 2 * ((torch.arange(len(images)) + self.count) % 2)  # [B]
        self.count += len(images)
        activations = torch.zeros(len(images), 10)
        activations[torch.arange(len(images)), first] = 0.9
        activations[torch.arange(len(images)), first + 1] = 0.8
        return Capsules(activations.unsqueeze(-1), activations)


def fake_run(name: str, model: ImageModel, **options: Any) -> Any:
    """A `TrainedRun` on a few images."""

    def load(split: str) -> ImageDataset:
        data = load_data(name, split, **options)
        return data.subset(range(0, len(data), max(1, len(data) // 40)))

    return SimpleNamespace(data_name=name, data_options=options, load_model=lambda: model, load_data=load)


def nothing(done: int, total: int) -> None:
    pass


def test_exact_match_by_overlap():
    data = load_data("multimnist", "test", source="digits").subset(range(200))
    # The network always predicts 0 and 1.
    labelled = GeneratedDataset(
        "multimnist", "test", data.class_names, "made up", 200,
        lambda numbers: data.batch(numbers)._replace(labels=torch.tensor([[1, 0]]).repeat(len(numbers), 1)),
    )  # fmt: skip
    result = by_overlap(Counts(), labelled)
    overlap = data.meta["overlap"]
    assert result.rows[0] == ProtocolRow("all", 200, (0.5,))
    assert sum(row.count for row in result.rows[1:]) == 200
    for row, low in zip(result.rows[1:], (0.5, 0.6, 0.7, 0.8, 0.9), strict=True):
        here = ((overlap > low) & (overlap <= low + 0.1 + 1e-9)).nonzero().flatten()
        assert row.count == len(here)
        assert row.accuracies[0] == pytest.approx((here % 2 == 0).float().mean().item())


def test_overlap_is_for_pairs(digits: ImageDataset, model: ImageModel):
    with raises_about(ConfigError, "data", "digits"):
        by_overlap(model, digits)


def test_corruptions_start_from_the_clean_accuracy(digits: ImageDataset, model: ImageModel):
    seen = []
    result = by_corruption(model, digits.subset(range(20)), progress=lambda done, total: seen.append((done, total)))
    clean = evaluate(model, digits.subset(range(20))).accuracy
    assert result.columns == ("0", "1", "2", "3", "4", "5")
    assert [row.name.replace(" ", "_") for row in result.rows] == CORRUPTIONS.names()
    assert all(row.accuracies[0] == clean and row.count == 20 for row in result.rows)
    assert seen[-1] == (len(CORRUPTIONS.names()),) * 2


def test_results_are_json(digits: ImageDataset, model: ImageModel):
    parts = (("first", digits), ("second", digits.subset([1, 2])))
    found = transfer(model, parts, protocol="p", question="q?", progress=None).to_json()
    assert json.loads(json.dumps(found)) == found
    assert (found["data"], found["origin"]) == ("digits", "embedded in torchcaps")
    assert [row["count"] for row in found["rows"]] == [60, 2]
    assert set(found["rows"][0]["accuracies"]) == {"accuracy"}


def test_no_transfer_data(model: ImageModel):
    with raises_about(ConfigError, "splits"):
        transfer(model, (), protocol="p", question="q?", progress=None)


def test_affine_reports_digit_source(monkeypatch):
    run = fake_run("translated_mnist", Counts((1, 40, 40)), source="digits")
    monkeypatch.setattr(DATASETS, "_items", {k: v for k, v in DATASETS._items.items() if k != "affnist"})
    result = PROTOCOLS["affine"](run, nothing)
    assert (result.data, result.rows[1].name, result.rows[1].count) == (
        "affine_mnist",
        "affine_mnist, test",
        1000,
    )
    assert "in the style of affNIST" in result.origin

    def gone(split: str) -> ImageDataset:
        raise DataError("no such file")

    def real(split: str) -> ImageDataset:
        return InMemoryDataset.from_arrays(torch.zeros(4, 1, 40, 40), [0, 1, 2, 9], name="affnist", split=split)

    monkeypatch.setitem(DATASETS._items, "affnist", DatasetEntry("", "", "", gone))
    assert PROTOCOLS["affine"](run, nothing).data == "affine_mnist"
    monkeypatch.setitem(DATASETS._items, "affnist", DatasetEntry("", "", "", real))
    assert PROTOCOLS["affine"](run, nothing).data == "affnist"


def test_viewpoints_takes_familiar_and_novel(monkeypatch):
    calls = []

    def toys(split: str, viewpoint: str) -> ImageDataset:
        calls.append((split, viewpoint))
        return InMemoryDataset.from_arrays(torch.zeros(10, 1, 8, 8), list(range(10)), name="smallnorb", split=split)

    splits = ("test", "familiar", "novel")
    monkeypatch.setitem(DATASETS._items, "smallnorb", DatasetEntry("", "", "", toys, splits))
    result = PROTOCOLS["viewpoints"](fake_run("smallnorb", Counts((1, 8, 8)), viewpoint="azimuth"), nothing)
    assert calls == [("familiar", "azimuth"), ("novel", "azimuth")]
    assert [row.name for row in result.rows] == ["familiar azimuth", "novel azimuth"]


@pytest.mark.parametrize(
    ("name", "needs"), [("affine", "translated_mnist"), ("viewpoints", "smallnorb with the option")]
)
def test_run_on_other_data(name: str, needs: str, model: ImageModel):
    with raises_about(ConfigError, "run", needs, "digits"):
        PROTOCOLS[name](fake_run("digits", model), nothing)


@pytest.mark.parametrize(("name", "model_shape", "options"), [
    ("overlap", (1, 36, 36), {"source": "digits"}), ("corruptions", (1, 28, 28), {}),
])  # fmt: skip
def test_protocols_on_the_runs_test_split(name, model_shape, options):
    run = fake_run("multimnist" if name == "overlap" else "digits", Counts(model_shape), **options)
    assert PROTOCOLS[name](run, nothing).rows[0].count == 40
