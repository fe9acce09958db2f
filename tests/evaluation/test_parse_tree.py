from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset
from torchcaps.errors import ConfigError
from torchcaps.evaluation import by_layer
from torchcaps.models import ImageModel


def rows(model: ImageModel, data: ImageDataset) -> dict[str, tuple[float, ...]]:
    return {row.name: row.accuracies for row in by_layer(model.eval(), data).rows}


def test_uniform_coupling_does_not_depend_on_the_image(digits: ImageDataset) -> None:
    found = rows(create_model("stacked_capsnet", depth=2, routing="uniform"), digits)
    assert list(found) == ["layer 1", "layer 2", "classes"]
    assert all(varies == pytest.approx(0, abs=1e-6) and starved == 0 for varies, starved, _ in found.values())


def test_routed_coupling_does(digits: ImageDataset) -> None:
    torch.manual_seed(0)
    model = create_model("capsnet_small")
    with torch.no_grad():
        model.head.weight.mul_(20)
    ((varies, _, _),) = rows(model, digits).values()
    assert 0.01 < varies < 1


def test_starved_and_dead_capsules(digits: ImageDataset) -> None:
    model = create_model("capsnet_small", routing={"name": "dynamic", "leaky": False})
    with torch.no_grad():
        model.head.weight[:, :4] = 0
        model.head.bias[:4] = 0
    ((_, _, dead),) = rows(model, digits).values()
    assert dead >= 0.4


def test_needs_capsule_layers(cnn: ImageModel, digits: ImageDataset) -> None:
    with raises_about(ConfigError, "run", "CNN"):
        by_layer(cnn, digits)
