from __future__ import annotations

import pytest
import torch
from torch import nn

from torchcaps.bench.step_memory import step_memory, training_step
from torchcaps.models import MODELS
from torchcaps.models.cnn import CNN
from torchcaps.train import Run, load_recipe


def test_step_memory(tmp_path):
    recipe = load_recipe("digits", ["model.options={routing = 'dynamic', decoder = 'none'}", "data.batch_size=32"])
    run = Run.create(recipe, tmp_path / "run")
    run.update_record(status="running")
    assert isinstance(step_memory(run.path), float)


def test_failure(tmp_path):
    assert "expected a run folder" in str(step_memory(tmp_path))


def test_batch_normalisation(monkeypatch):
    def normalised(image_shape, num_classes):
        return CNN(image_shape, num_classes, nn.Identity(), [nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10)])

    monkeypatch.setattr(MODELS, "_items", {"normalised": normalised})
    recipe = load_recipe("digits", ["model={name = 'normalised'}"])
    (step,) = training_step(recipe).prepare({"batch": 1}).values()
    assert step() is None
    with pytest.raises(ValueError, match="more than 1 value"):
        normalised((1, 28, 28), 10)(torch.rand(1, 1, 28, 28))
