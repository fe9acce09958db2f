from __future__ import annotations

import os
import urllib.request
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from model_shapes import mark_slow
from shipping import ship
from torchcaps.data import ImageDataset
from torchcaps.errors import DataError
from torchcaps.evaluation import evaluate
from torchcaps.evaluation.pretrained_data import embedded_data, pretrained_data
from torchcaps.models import pretrained

SHIPPED = tc.list_pretrained()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    return tmp_path


def at_hand(name: str, monkeypatch: pytest.MonkeyPatch) -> ImageDataset:
    """The test images of shipped weights, from this machine alone; skipped where they are not there."""
    if not os.environ.get("TORCHCAPS_DATA"):
        pytest.skip("needs the real data sets: set TORCHCAPS_DATA to the folder that holds them")

    def refuse(*args: object, **options: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    try:
        return pretrained_data(tc.pretrained_card(name))
    except DataError as error:
        pytest.skip(f"the data of '{name}' are missing: {error}")


def check(name: str, data: ImageDataset, expected: float | None) -> None:
    """The accuracy of the card within 0.05 %, or within one image where there are few."""
    assert expected is not None
    model = tc.create_model(tc.pretrained_card(name).model, pretrained=name)
    assert abs(evaluate(model, data).accuracy - expected) <= max(0.0005, 1.001 / len(data))


@pytest.mark.parametrize("name", SHIPPED)
def test_test_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card = tc.pretrained_card(name)
    check(name, at_hand(name, monkeypatch).subset(range(card.quick_images)), card.quick_accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_all_test_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card, data = tc.pretrained_card(name), at_hand(name, monkeypatch)
    assert len(data) == card.test_images
    check(name, data, card.test_accuracy)


@pytest.mark.parametrize("name", mark_slow(SHIPPED, {"mnist_efficient", "multimnist"}))
def test_embedded_images(name: str) -> None:
    card = tc.pretrained_card(name)
    data = embedded_data(card)
    if data is None:
        pytest.skip(f"torchcaps carries no images like those of {card.data['name']}")
    check(name, data, card.embedded_accuracy)


def test_weights_worse_than_card_are_reported(folder: Path) -> None:
    model = ship(folder, "digits", model="cnn_small", options={}, data={"name": "digits", "options": {}})
    data = pretrained_data(tc.pretrained_card("digits")).subset(range(200))
    reached = evaluate(model, data).accuracy  # pyright: ignore[reportArgumentType]
    check("digits", data, reached + 1 / 200)
    with pytest.raises(AssertionError):
        check("digits", data, reached + 2 / 200)


def test_images_are_cropped_to_network_input(folder: Path) -> None:
    data = {"name": "digits", "options": {}}
    ship(folder, "digits", image_shape=(1, 20, 20), data=data)
    card = tc.pretrained_card("digits")
    whole, centre = tc.load_data("digits", "test").images, pretrained_data(card).images
    assert torch.equal(centre, whole[:, :, 4:-4, 4:-4])
    found = embedded_data(card)
    assert found is not None
    assert torch.equal(found.images, centre)


def test_embedded_images_by_data_set(folder: Path) -> None:
    pairs = {"name": "multimnist", "options": {"source": "mnist", "seed": 3}}
    ship(folder, "multimnist", image_shape=(1, 36, 36), num_labels=2, data=pairs)
    ship(folder, "fashion_mnist", data={"name": "fashion_mnist", "options": {}})
    found = embedded_data(tc.pretrained_card("multimnist"))
    assert found is not None
    assert (found.name, found.num_labels, len(found)) == ("multimnist", 2, 1000)
    assert embedded_data(tc.pretrained_card("fashion_mnist")) is None
