from __future__ import annotations

import pytest
import torch
from torch import nn

from torchcaps.bench.step import step_memory, training_step
from torchcaps.models import MODELS
from torchcaps.models.cnn import CNN
from torchcaps.train import Run, load_recipe


def test_memory_of_a_step_in_a_process_of_its_own(tmp_path):
    recipe = load_recipe("digits", ["model.options={routing = 'dynamic', decoder = 'none'}", "data.batch_size=32"])
    run = Run.create(recipe, tmp_path / "run")
    run.update_record(status="running")
    found = step_memory(run.path)
    assert isinstance(found, float)
    # Gradients and Adam's two means of some 300,000 parameters, at least.
    assert 3 * 4 * 0.3 < found < 500


def test_what_went_wrong(tmp_path):
    assert "expected a run folder" in str(step_memory(tmp_path))


def test_a_network_with_batch_normalisation_can_be_warmed_up(monkeypatch):
    def normalised(image_shape, num_classes):
        return CNN(image_shape, num_classes, nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10)))

    monkeypatch.setattr(MODELS, "_items", {"normalised": normalised})
    recipe = load_recipe("digits", ["model={name = 'normalised'}"])
    (step,) = training_step(recipe).prepare({"batch": 1}).values()
    assert step() is None
    with pytest.raises(ValueError, match="more than 1 value"):
        normalised((1, 28, 28), 10)(torch.rand(1, 1, 28, 28))
