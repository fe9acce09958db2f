from __future__ import annotations

import json

import pytest
import torch

from model_shapes import fit_shape
from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset, InMemoryDataset, load_data, to_float
from torchcaps.diagnostics import LayerDiagnostics, Snapshot, diagnose, gradient_norms, layers, snapshot
from torchcaps.errors import ConfigError
from torchcaps.models import MODELS, ImageModel
from torchcaps.nn import ROUTERS, MarginLoss, Router
from torchcaps.ops import Routing


@pytest.fixture(scope="module")
def sharp() -> ImageModel:
    """A network with large weights, so that routing is not uniform."""
    torch.manual_seed(0)
    model = create_model("capsnet_small", routing={"name": "dynamic", "iters": 4}).eval()
    with torch.no_grad():
        model.get_submodule("head").weight.mul_(200)  # pyright: ignore[reportCallIssue]
    return model


def test_class_layer_by_hand(sharp: ImageModel, digits: ImageDataset) -> None:
    found = diagnose(sharp, digits)
    (layer,) = found.layers
    assert (found.data, found.split, found.count) == ("digits", "test", 60)
    assert (layer.name, layer.router, layer.children, layer.parents) == ("head", "dynamic", 144, 10)
    with torch.no_grad():
        trace = sharp.trace(to_float(digits.images))
    bits = torch.special.entr(trace.coupling).sum(dim=-1).mean(dim=(1, 2)) / torch.tensor(10.0).log()
    assert layer.entropy == pytest.approx(bits.tolist(), rel=1e-4)
    assert layer.entropy[0] > 0.999 > layer.entropy[-1]
    assert len(layer.logit_change) == 3
    # The first iteration of dynamic routing is uniform.
    first, last = (trace.activations[step].argmax(dim=-1) for step in (0, -1))
    assert layer.changed == int((first != last).sum()) / 60
    assert layer.changed
    assert layer.activation == pytest.approx(trace.activations[-1].amax(dim=0).tolist())
    assert layer.share == pytest.approx((10 * trace.coupling[-1].mean(dim=(0, 1))).tolist(), rel=1e-4)
    assert found.gradient_norms == pytest.approx(
        gradient_norms(sharp, MarginLoss(), to_float(digits.images), digits.labels)
    )


def test_batch_size_does_not_matter(sharp: ImageModel, digits: ImageDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = diagnose(sharp, digits).layers[0]
    # Room for the votes of seven images, 144 x 10 x 16 numbers each.
    monkeypatch.setattr(layers, "MAX_VOTES", 7 * 23040)
    calls: list[tuple[int, int]] = []
    pieces = diagnose(sharp, digits, progress=lambda done, total: calls.append((done, total))).layers[0]
    assert calls == [(min(done, 60), 60) for done in range(7, 64, 7)]
    assert pieces.entropy == pytest.approx(whole.entropy, rel=1e-5)
    assert pieces.changed == whole.changed
    assert pieces.activation == pytest.approx(whole.activation)


def test_number_of_images(sharp: ImageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data("digits", "test").subset(range(300))
    assert diagnose(sharp, data, limit=3).count == 3
    monkeypatch.setattr(snapshot, "WORK", 20 * 23040)
    assert diagnose(sharp, data).count == 20
    monkeypatch.setattr(snapshot, "WORK", 1)
    assert diagnose(sharp, data).count == 16
    assert diagnose(sharp, data.subset(range(5))).count == 5


@pytest.mark.parametrize("name", ROUTERS.names())
def test_every_router_can_be_diagnosed(name: str, digits: ImageDataset) -> None:
    torch.manual_seed(0)
    model = create_model("capsnet_small", routing=name, decoder="none")
    found = diagnose(model, digits, limit=8)
    (layer,) = found.layers
    assert len(layer.logit_change) == len(layer.entropy) - 1
    assert all(-1e-6 <= value <= 1 + 1e-6 for value in layer.entropy)
    assert layer.changed is not None
    assert 0 <= layer.changed <= 1
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["layers"][0]["dead"] == layer.dead
    # Random numbers, where a router draws any, are the same each time.
    assert diagnose(model, digits, limit=8) == found


def routers_of(model: ImageModel) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, Router)]


# On the meta device: only the modules are needed.
with torch.device("meta"):
    ROUTED = [name for name in MODELS.names() if routers_of(create_model(name))]


@pytest.mark.parametrize("name", ROUTED)
def test_every_router_of_every_model(name: str, digits: ImageDataset) -> None:
    torch.manual_seed(0)
    shape = fit_shape(name, (1, 20, 20))
    model, data = create_model(name, shape), digits.cropped(20)
    if len(shape) != 3:
        data = InMemoryDataset.from_arrays(torch.rand(10, *shape), list(range(10)), rank=len(shape) - 1)
    found = diagnose(model, data, limit=2)
    assert [f"{layer.name}.routing" for layer in found.layers] == routers_of(model)
    for layer in found.layers:
        assert len(layer.logit_change) == len(layer.entropy) - 1
        assert all(-1e-6 <= value <= 1 + 1e-6 for value in layer.entropy)
        assert layer.changed is not None
        assert found.gradient_norms[layer.name] > 0


def test_routed_models() -> None:
    assert {"attention_capsnet", "capsnet", "deep_capsnet", "matrix_capsnet", "residual_capsnet"} <= set(ROUTED)
    assert "cnn_small" not in ROUTED


def test_concurrent_layers(digits: ImageDataset) -> None:
    torch.manual_seed(0)
    model = create_model("attention_capsnet_small", routing={"name": "attention", "iters": 4})
    found = diagnose(model, digits, limit=4)
    # A fourth iteration of the layers below would not reach the classes.
    assert [len(layer.entropy) for layer in found.layers] == [3, 3, 4]
    for layer in found.layers:
        assert layer.entropy[0] == pytest.approx(1)
        assert max(layer.entropy[1:]) < 0.9999
        assert min(layer.logit_change) > 0
    with torch.no_grad():
        trace = model.eval().trace(to_float(digits.images[[0, 20, 39, 59]]))
    bits = torch.special.entr(trace.coupling).sum(dim=-1).mean(dim=(1, 2)) / torch.tensor(10.0).log()
    assert found.layers[-1].entropy == pytest.approx(bits.tolist(), rel=1e-4)


def test_layers_over_grids(digits: ImageDataset) -> None:
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_small", routing={"name": "em", "iters": 3, "sharpness": 1.0}).train()
    found = diagnose(model, digits, limit=2)
    assert [(layer.name, layer.parents) for layer in found.layers] == [("lower", 16), ("upper", 16), ("head", 10)]
    assert all(layer.entropy[0] == pytest.approx(1, abs=1e-4) for layer in found.layers)
    assert all(len(layer.entropy) == 3 and layer.entropy[-1] < 0.9999 for layer in found.layers)
    assert {"stem.1", "lower", "upper", "head"} <= set(found.gradient_norms)
    assert model.training


def test_network_without_routing_has_gradients_only(cnn: ImageModel, digits: ImageDataset) -> None:
    found = diagnose(cnn, digits)
    assert found.layers == ()
    assert min(found.gradient_norms.values()) > 0


def test_non_finite_values_become_none() -> None:
    layer = LayerDiagnostics("head", "em", 8, 2, (float("nan"),), (), None, (0.9, 0.04), (1.9, 0.1))
    found = Snapshot("digits", "test", 1, (layer,), {"head": float("inf")}).to_json()
    assert (found["layers"][0]["entropy"], found["layers"][0]["dead"]) == ([None], 0.5)
    assert found["gradient_norms"] == {"head": None}


def test_no_images(model: ImageModel, digits: ImageDataset) -> None:
    with raises_about(ConfigError, "data", "digits"):
        diagnose(model, digits.subset([]))
    with raises_about(ConfigError, "limit", 0):
        diagnose(model, digits, limit=0)


def test_router_without_uniform_coupling(
    digits: ImageDataset, monkeypatch: pytest.MonkeyPatch, sharp: ImageModel
) -> None:
    monkeypatch.setattr(Routing, "has_softmax", False)
    assert diagnose(sharp, digits, limit=8).layers[0].changed is None
