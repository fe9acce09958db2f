"""create_model(device=, dtype=), reset_parameters and reset_classes over all models."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from limits import memory_limit
from model_shapes import by_name, fit_shape
from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import CapsNet, ImageModel, create_model
from torchcaps.nn import EMRouting

SHAPE = (1, 20, 20)


def make(name: str, num_classes: int = 3) -> ImageModel:
    torch.manual_seed(0)
    return create_model(name, fit_shape(name, SHAPE), num_classes).eval()


@by_name
def test_device_and_dtype(name: str) -> None:
    model = create_model(name, fit_shape(name, SHAPE), 3, device="meta", dtype=torch.float64)
    for key, tensor in model.state_dict().items():
        assert tensor.device.type == "meta", key
        assert not tensor.is_floating_point() or tensor.dtype == torch.float64, key


@by_name
def test_double_precision(name: str) -> None:
    model = make(name)
    double = create_model(name, fit_shape(name, SHAPE), 3, dtype=torch.float64).eval()
    double.load_state_dict(model.state_dict())
    images = torch.rand(2, *model.image_shape)
    with torch.no_grad():
        for exact, close in zip(double(images.double()), model(images), strict=True):
            assert exact.dtype == torch.float64
            torch.testing.assert_close(close.double(), exact, rtol=1e-3, atol=1e-4)


@by_name
def test_reset_parameters_draws_as_the_constructor(name: str) -> None:
    model, new = make(name), make(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    model.reset_parameters()
    for (key, got), expected in zip(model.named_parameters(), new.parameters(), strict=True):
        assert got.isfinite().all(), key
        if expected.numel() > 1 and expected.std() == 0:
            assert torch.equal(got, expected), key
        elif expected.numel() >= 500:
            assert 0.8 < (got.std() / expected.std()).item() < 1.25, key


@by_name
def test_reset_classes(name: str) -> None:
    model, before, images = make(name), make(name), torch.rand(2, *fit_shape(name, SHAPE))
    model.temperature = 2.0
    if not model.is_classifier:
        with raises_about(ConfigError, "reset_classes", "classifier"):
            model.reset_classes(5)
        return
    with torch.no_grad():
        parts, features = model.reset_classes(5), before.features(images)
        assert "head" in parts
        assert set(parts) <= {"head", "decoder"}
        for ours, theirs in zip(model.features(images), features, strict=True):
            assert torch.equal(ours, theirs)
        capsules = model(images)
    assert capsules.activations.shape == (2, 5)
    assert model.num_classes == 5
    assert model.temperature is None
    assert not any(module.training for module in model.modules())
    assert {key: value.shape for key, value in model.state_dict().items()} == {
        key: value.shape for key, value in make(name, 5).state_dict().items()
    }
    if model.decoder is not None:
        assert model.decode(capsules).shape == images.shape


def test_reset_classes_to_the_same_number() -> None:
    model, before = make("cnn_small"), make("cnn_small")
    torch.manual_seed(1)
    assert model.reset_classes(3) == ["head"]
    changed = {
        key
        for (key, new), old in zip(model.state_dict().items(), before.state_dict().values(), strict=True)
        if not torch.equal(new, old)
    }
    last = max(key for key in before.state_dict() if key.startswith("head.") and key.endswith("weight"))
    assert changed == {last, last.replace("weight", "bias")}


def test_reset_classes_of_given_modules() -> None:
    stem = nn.Conv2d(1, 8, 3)
    model = create_model("backbone_capsnet", (1, 8, 8), 3, backbone=stem, dtype=torch.float64)
    model.reset_classes(4)
    assert model.stem is stem
    assert model(torch.rand(2, 1, 8, 8, dtype=torch.float64)).activations.shape == (2, 4)
    routed = create_model("matrix_capsnet_small", SHAPE, 3, routing=EMRouting(iters=1))
    for each in (routed, copy.deepcopy(routed), pickle.loads(pickle.dumps(routed))):
        each.reset_classes(2)
        assert each(torch.rand(1, *SHAPE)).activations.shape == (1, 2)
        assert each.class_router is not None
        assert each.class_router.options()["iters"] == 1


def test_errors() -> None:
    with raises_about(ConfigError, "reset_classes", "create_model", "CapsNet"):
        CapsNet(SHAPE, 3, stem=((4, 5, 1),), primary=(2, 5, 2)).reset_classes(2)
    with raises_about(ConfigError, "num_classes", "0"):
        make("cnn_small").reset_classes(0)
    with raises_about(ConfigError, "device", "'nosuch'"):
        create_model("cnn_small", device="nosuch")
    with raises_about(ConfigError, "dtype", "torch.int64"):
        create_model("cnn_small", dtype=torch.int64)
    with raises_about(ConfigError, "device", "'meta'"):
        create_model("cnn_small", pretrained="mnist_cnn", device="meta")


def test_pretrained_in_another_type() -> None:
    images = torch.rand(2, 1, 28, 28)
    model = create_model("cnn_small", pretrained="mnist_cnn", device="cpu", dtype=torch.float64)
    with torch.no_grad():
        double = model(images.double()).activations
        single = create_model("cnn_small", pretrained="mnist_cnn")(images).activations
    torch.testing.assert_close(double, single.double(), rtol=1e-3, atol=1e-5)


@by_name
@pytest.mark.parametrize("side", [2**21, 10**12, 10**300])
def test_sizes_that_no_network_has(name: str, side: int) -> None:
    """A file by others may name them; rows and columns are counted before there are weights."""
    shape = fit_shape(name, SHAPE)
    for place in range(len(shape)):
        sizes = (*shape[:place], side, *shape[place + 1 :])
        with raises_about(ShapeError, "image_shape", "1,048,576"), memory_limit(10**9):
            create_model(name, sizes, 3, device="meta")
    with raises_about(ConfigError, "num_classes", "1,048,576"), memory_limit(10**9):
        create_model(name, shape, side, device="meta")
