from __future__ import annotations

import io

import pytest
import torch

from model_shapes import fit_shape
from raising import raises_about
from torchcaps import create_model, list_models
from torchcaps.errors import ConfigError
from torchcaps.nn import Scores, log_probabilities

CLASSIFIERS = [name for name in list_models() if name != "transforming_autoencoder" and "doctest" not in name]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_gives_probabilities(name: str) -> None:
    torch.manual_seed(0)
    shape = fit_shape(name, (2, 32, 32) if "norb" in name else (1, 28, 28))
    model = create_model(name, shape, 5).eval()
    images = torch.rand(2, *shape)
    with torch.no_grad():
        probabilities = Scores(model, temperature=0.7)(images)
        logs = Scores(model, "log_probabilities", temperature=0.7)(images)
        scores = Scores(model, "scores", temperature=0.7)(images)
    assert probabilities.shape == (2, 5)
    assert torch.allclose(probabilities.sum(dim=-1), torch.ones(2))
    assert torch.allclose(logs.exp(), probabilities)
    assert torch.allclose(logs.softmax(dim=-1), probabilities)
    assert torch.equal(scores, model(images).activations)


def test_temperature_one_gives_the_share_of_the_activations() -> None:
    activations = torch.rand(4, 6)
    assert torch.allclose(log_probabilities(activations).exp(), activations / activations.sum(dim=-1, keepdim=True))


def test_temperature_divides_scores_of_cnn() -> None:
    scores = torch.randn(4, 6)
    assert torch.allclose(log_probabilities(scores.softmax(dim=-1), 3.0), (scores / 3).log_softmax(dim=-1), atol=1e-6)


def test_zero_activations_give_finite_values_and_gradients() -> None:
    activations = torch.zeros(2, 3, requires_grad=True)
    logs = log_probabilities(activations, 0.5)
    logs[:, 0].sum().backward()
    assert torch.allclose(logs.exp(), torch.full((2, 3), 1 / 3))
    assert activations.grad is not None
    assert activations.grad.isfinite().all()


def test_gradients_reach_the_images() -> None:
    images = torch.rand(2, 1, 28, 28, requires_grad=True)
    Scores(create_model("capsnet_small").eval())(images)[:, 3].sum().backward()
    assert images.grad is not None
    assert images.grad.abs().sum() > 0


def test_the_temperature_of_the_model_is_used() -> None:
    model = create_model("cnn_small")
    assert (Scores(model).temperature, Scores(model).calibrated) == (1.0, False)
    model.temperature = 2.5
    assert (Scores(model).temperature, Scores(model).calibrated) == (2.5, True)
    assert Scores(model, temperature=0.5).temperature == 0.5


def test_scores_can_be_exported() -> None:
    scores = Scores(create_model("capsnet_small").eval(), temperature=0.4)
    images = torch.rand(2, 1, 28, 28)
    file = io.BytesIO()
    torch.export.save(torch.export.export(scores, (images,), strict=False), file)
    file.seek(0)
    assert torch.allclose(torch.export.load(file).module()(images), scores(images), atol=1e-6)


def test_scores_rejects_bad_arguments() -> None:
    model = create_model("cnn_small")
    with raises_about(ConfigError, "kind", "logits"):
        Scores(model, "logits")  # pyright: ignore[reportArgumentType]
    for temperature in (0.0, -1.0, float("nan"), float("inf")):
        with raises_about(ConfigError, "temperature", temperature):
            Scores(model, temperature=temperature)
    with raises_about(ConfigError, "model", "TransformingAutoencoder"):
        Scores(create_model("transforming_autoencoder"))
