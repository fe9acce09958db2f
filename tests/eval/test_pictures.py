from __future__ import annotations

import dataclasses

import pytest
import torch

from torchcaps.data import ImageData, load_data
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.eval import PICTURES, Diagnosis, Evaluation, LayerDiagnosis, Subject, diagnose, draw, evaluate
from torchcaps.eval.pictures import OWN, clearest, examples, lacking
from torchcaps.models import ImageModel, create_model

METRICS = {"epoch": [1.0], "train_loss": [0.5], "val_accuracy": [0.9]}
HISTORY = {
    "epoch": [1, 1, 2, 2],
    "layer": ["head"] * 4,
    "iteration": [1, 2, 1, 2],
    "measure": ["entropy"] * 4,
    "value": [1.0, 0.875, 1.0, 0.625],
}


def said(digits: ImageData, predictions: list[int], sure: list[float]) -> Evaluation:
    activations = torch.nn.functional.one_hot(torch.tensor(predictions), 10) * torch.tensor(sure)[:, None]
    confusion = torch.zeros(10, 10, dtype=torch.int64)
    data = dataclasses.replace(digits, images=digits.images[: len(sure)], labels=torch.arange(len(sure)) % 3)
    return Evaluation(data, activations, data.labels, confusion, 0.0)


def test_right_ones_of_all_classes_come_first_then_wrong_ones_twice(digits: ImageData) -> None:
    # Labels are 0 1 2 0 1 2; the second and the last are wrong.
    evaluation = said(digits, [0, 7, 2, 0, 1, 8], [0.9] * 6)
    places, targets = examples(evaluation)
    assert places.tolist() == [0, 4, 2, 3, 1, 1, 5, 5]
    assert targets.tolist() == [0, 1, 2, 0, 7, 1, 8, 2]


def test_there_may_be_no_right_or_no_wrong_ones(digits: ImageData) -> None:
    assert examples(said(digits, [0, 1], [0.9] * 2))[0].tolist() == [0, 1]
    assert examples(said(digits, [5, 5], [0.9] * 2))[1].tolist() == [5, 0, 5, 1]


def test_the_clearest_is_right_where_any_is(digits: ImageData) -> None:
    assert clearest(said(digits, [0, 7, 2], [0.3, 0.9, 0.4])) == 2
    assert clearest(said(digits, [5, 5, 5], [0.3, 0.9, 0.4])) == 1


@pytest.mark.parametrize("what", PICTURES.names())
def test_every_picture_has_a_title_a_caption_and_a_description(what: str, model: ImageModel, digits: ImageData) -> None:
    if what in OWN:
        model = create_model({"transformations": "transforming_autoencoder", "phases": "kuramoto_net"}[what]).eval()
    picture = draw(what, Subject(model, evaluate(model, digits), METRICS, history=HISTORY))
    picture.figure.canvas.draw()
    assert picture.figure.axes
    assert all(len(words) > 10 for words in (picture.title, picture.caption, picture.alt))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("reconstructions", "decoder"),
        ("perturbations", "decoder"),
        ("coupling", "routing"),
        ("diagnostics", "routing"),
        ("routing_curves", "routing"),
        ("transformations", "transformations"),
        ("phases", "phases"),
    ],
)
def test_what_a_model_lacks_is_named(what: str, reason: str, cnn: ImageModel, digits: ImageData) -> None:
    words = rf"^{what}: expected a model that has them, got CNN \(this model has no {reason}\)$"
    with pytest.raises(ConfigError, match=words):
        draw(what, Subject(cnn, evaluate(cnn, digits), METRICS))


def test_a_diagnosis_that_is_there_is_not_made_again(model: ImageModel, digits: ImageData) -> None:
    found = diagnose(model, digits, limit=3)
    picture = draw("diagnostics", Subject(model, evaluate(model, digits), METRICS, found))
    assert picture.caption.startswith("Over 3 images, layer by layer")
    layer = dataclasses.replace(found.layers[0], changed=None)
    picture = draw("diagnostics", Subject(model, evaluate(model, digits), METRICS, replace_layers(found, layer)))
    assert "unknown of the predictions" in picture.caption


def replace_layers(found: Diagnosis, *layers: LayerDiagnosis) -> Diagnosis:
    return dataclasses.replace(found, layers=layers)


def test_an_unknown_picture_is_named(model: ImageModel, digits: ImageData) -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown picture 'curve'; did you mean 'curves'\?$"):
        draw("curve", Subject(model, evaluate(model, digits), METRICS))


@pytest.mark.parametrize("what", sorted(set(PICTURES) - set(OWN)))
def test_every_picture_of_pairs(what: str) -> None:
    data = load_data("multimnist", "test", source="digits").subset(range(0, 1000, 25))
    torch.manual_seed(0)
    model = create_model("capsnet_small", (1, 36, 36)).eval()
    picture = draw(what, Subject(model, evaluate(model, data), METRICS, history=HISTORY))
    picture.figure.canvas.draw()
    assert ("green" in picture.caption) == (what == "reconstructions")


def test_a_model_without_classes_has_no_pictures_of_them(digits: ImageData) -> None:
    model = create_model("transforming_autoencoder").eval()
    subject = Subject(model, evaluate(model, digits), {"epoch": [1.0], "val_loss": [0.5]})
    words = r"^confusion: expected a model that has them, got TransformingAutoencoder \(this model has no classes\)$"
    with pytest.raises(ConfigError, match=words):
        draw("confusion", subject)
    assert "accuracy" not in draw("curves", subject).caption


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_layers_are_diagnosed_in_whatever_order_they_are_routed(schedule: str) -> None:
    assert lacking("diagnostics", create_model("attention_capsnet_small", schedule=schedule)) is None


def test_routing_curves_say_how_the_entropy_went(model: ImageModel, digits: ImageData) -> None:
    picture = draw("routing_curves", Subject(model, evaluate(model, digits), METRICS, history=HISTORY))
    assert "over 2 epochs" in picture.alt
    assert picture.alt.endswith("goes from 0.875 to 0.625.")
    with pytest.raises(ConfigError, match="table: expected the columns epoch, layer"):
        draw("routing_curves", Subject(model, evaluate(model, digits), METRICS))
