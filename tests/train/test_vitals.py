from __future__ import annotations

import pytest
import torch

from torchcaps import create_model
from torchcaps.data import Augment, load_data, to_float
from torchcaps.nn import LOSSES, MarginLoss
from torchcaps.ops.diagnostics import coupling_entropy
from torchcaps.train import _keeper as keeper
from torchcaps.train import start
from torchcaps.train._vitals import Vitals
from torchcaps.train.run import Run, write_metrics


def test_values_are_those_of_sixteen_images():
    data = load_data("digits", "val")
    torch.manual_seed(0)
    model = create_model("capsnet_small")
    found = Vitals(data, Augment())(model, MarginLoss())
    assert list(found) == ["entropy", "dead", "gradient_norm"]
    places = torch.linspace(0, len(data) - 1, 16).round().long()
    images, labels = to_float(data.images[places]), data.labels[places]
    with torch.no_grad():
        trace = model.trace(images)
    assert found["entropy"] == pytest.approx(float(coupling_entropy(trace.coupling[-1:])), rel=1e-5)
    assert found["dead"] == float((trace.activations[-1].amax(dim=0) < 0.05).float().mean())
    MarginLoss()(model(images), labels).backward()
    square = sum(float(weight.grad.square().sum()) for weight in model.parameters() if weight.grad is not None)
    assert found["gradient_norm"] == pytest.approx(square**0.5, rel=1e-4)


def test_a_network_without_routing_has_a_gradient_only():
    found = Vitals(load_data("digits", "val"), Augment())(create_model("cnn_small"), LOSSES["cross_entropy"]())
    assert list(found) == ["gradient_norm"]


def test_a_loss_that_counts_steps_is_not_moved():
    loss = LOSSES["spread"]()
    Vitals(load_data("digits", "val"), Augment())(create_model("capsnet_small"), loss)
    assert int(loss.get_buffer("step")) == 0
    assert loss.training


def test_training_is_the_same_with_and_without(recipe, tmp_path, monkeypatch):
    run = start(recipe("trainer.epochs=2"), tmp_path / "with")
    assert {"entropy", "dead", "gradient_norm"} <= set(run.metrics())
    monkeypatch.setattr(keeper.Vitals, "__call__", lambda self, model, loss: {})
    other = start(recipe("trainer.epochs=2"), tmp_path / "without")
    assert "entropy" not in other.metrics()
    assert other.weights.read_bytes() == run.weights.read_bytes()


def test_rows_of_an_older_run_have_gaps(recipe, tmp_path):
    write_metrics(tmp_path, [{"epoch": 1, "val_loss": 0.5}, {"epoch": 2, "val_loss": 0.4, "entropy": 0.9}])
    first, second = Run(tmp_path, recipe()).metrics()["entropy"]
    assert first != first
    assert second == 0.9
