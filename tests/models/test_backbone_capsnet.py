from __future__ import annotations

import builtins
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, ShapeError, UnknownNameError
from torchcaps.models import BACKBONES, create_model
from torchcaps.models._backbones import make_backbone

MODELS = ("backbone_capsnet", "backbone_linear")
by_model = pytest.mark.parametrize("name", MODELS)


class Patches(nn.Module):
    """A backbone that returns tokens: one per patch of 4x4 pixels."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 24, 4, stride=4)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images).flatten(2).transpose(1, 2)  # [B, N, 24]


BACKBONE_MODULES = {
    "maps": lambda: nn.Conv2d(3, 24, 4, stride=4),
    "tokens": Patches,
    "vectors": lambda: nn.Sequential(Patches(), nn.Flatten(), nn.Linear(24 * 25, 24)),
}


@pytest.mark.parametrize("kind", BACKBONE_MODULES)
@by_model
def test_any_module_as_backbone(name: str, kind: str) -> None:
    torch.manual_seed(0)
    backbone = BACKBONE_MODULES[kind]()
    model = create_model(name, (3, 20, 20), 4, backbone=backbone)
    assert model.stem is backbone
    assert model(torch.rand(2, 3, 20, 20)).activations.shape == (2, 4)
    assert not model.any_size


@pytest.mark.parametrize(("side", "stride"), [(32, 4), (64, 8), (224, 16)])
@pytest.mark.parametrize("name", ["resnet8", "resnet14"])
def test_stem_follows_the_size_of_the_images(name: str, side: int, stride: int) -> None:
    with torch.device("meta"):
        backbone = BACKBONES[name]((3, side, side))
        maps = backbone(torch.zeros(2, 3, side, side))
    assert backbone.stride == stride
    assert maps.shape == (2, backbone.num_features, side // stride, side // stride)


@pytest.mark.parametrize(("side", "stride", "places"), [(32, 8, 3), (64, 16, 3), (224, 32, 6)])
def test_plain_convolutions_do_not_pad_their_stem(side: int, stride: int, places: int) -> None:
    with torch.device("meta"):
        backbone = BACKBONES["vgg7"]((3, side, side))
        maps = backbone(torch.zeros(2, 3, side, side))
    assert backbone.stride == stride
    assert maps.shape == (2, 240, places, places)


def test_control_differs_by_the_head_alone() -> None:
    torch.manual_seed(0)
    first, second = (create_model(name, (3, 32, 32), 5, backbone="resnet10") for name in MODELS)
    shapes = [{key: tensor.shape for key, tensor in model.stem.state_dict().items()} for model in (first, second)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("name", BACKBONES.names())
def test_weights_from_a_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = make_backbone(name, (3, 32, 32))
    # A classifier in the file is ignored.
    save_file({**source.state_dict(), "fc.weight": torch.zeros(3, 4)}, tmp_path / "weights.safetensors")
    model = create_model(
        "backbone_capsnet", (3, 32, 32), 5, backbone=name, weights=str(tmp_path / "weights.safetensors")
    )
    for key, tensor in model.stem.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[key]), key


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"

    def create() -> None:
        create_model("backbone_linear", (3, 32, 32), 5, weights=str(file))

    with raises_about(CheckpointError, "weights:", file):
        create()
    file.write_bytes(b"nothing")
    with raises_about(CheckpointError, "weights:", file):
        create()
    state = make_backbone("resnet8_thin", (3, 32, 32)).state_dict()
    save_file(state, file)
    with raises_about(CheckpointError, "weights:", "stem.0.weight", "got (16, 3, 3, 3)"):
        create()
    save_file({key: tensor for key, tensor in state.items() if not key.startswith("stem")}, file)
    with raises_about(CheckpointError, "weights:", "'stem.0.weight'", "without it"):
        create()


@by_model
def test_unknown_backbones(name: str) -> None:
    with raises_about(UnknownNameError, "unknown backbone 'resnet9'"):
        create_model(name, backbone="resnet9")
    with raises_about(ConfigError, "backbone:", "got int"):
        create_model(name, backbone=8)


class NoFeatures(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean()


@by_model
def test_backbones_that_do_not_fit(name: str) -> None:
    with raises_about(ShapeError, "image_shape:", "got (3, 2, 2)"):
        create_model(name, (3, 2, 2), 4, backbone=Patches())
    with raises_about(ShapeError, "backbone:", "got ()"):
        create_model(name, (3, 8, 8), 4, backbone=NoFeatures())


@pytest.mark.parametrize(("option", "value"), [("freeze", -1), ("freeze", 1.5), ("backbone_lr", 0.0)])
@by_model
def test_options_out_of_range(name: str, option: str, value: Any) -> None:
    with raises_about(ConfigError, f"{option}:", f"got {value}"):
        create_model(name, (1, 20, 20), 4, **{option: value})


@by_model
def test_probing_leaves_the_backbone_as_it_was(name: str) -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout()).train()
    backbone[2].eval()
    before = {key: tensor.clone() for key, tensor in backbone.state_dict().items()}
    create_model(name, (3, 8, 8), 2, backbone=backbone)
    assert [module.training for module in backbone.modules()] == [True, True, True, False]
    assert all(torch.equal(before[key], tensor) for key, tensor in backbone.state_dict().items())


def test_timm_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    whole = builtins.__import__

    def broken(name: str, *args):
        if name == "timm":
            raise RuntimeError("operator torchvision::nms does not exist")
        return whole(name, *args)

    monkeypatch.setattr(builtins, "__import__", broken)
    with raises_about(ConfigError, "backbone:", "timm:resnet18", "torchvision::nms"):
        create_model("backbone_capsnet", backbone="timm:resnet18")


def test_timm_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with the function that timm has, which makes a real network."""
    made = types.ModuleType("timm")

    def create(name: str, pretrained: bool, num_classes: int, global_pool: str, in_chans: int) -> nn.Module:
        if name != "patches" or pretrained or num_classes or global_pool:
            raise RuntimeError(f"Unknown model ({name})")
        return Patches(in_chans)

    vars(made)["create_model"] = create
    monkeypatch.setitem(sys.modules, "timm", made)
    model = create_model("backbone_capsnet", (2, 20, 20), 3, backbone="timm:patches")
    assert model(torch.rand(2, 2, 20, 20)).poses.shape == (2, 3, 16)
    with raises_about(ConfigError, "backbone:", "got 'patchs'"):
        create_model("backbone_capsnet", (2, 20, 20), 3, backbone="timm:patchs")


def test_without_pooling_there_is_a_grid() -> None:
    model = create_model("backbone_capsnet", (1, 24, 32), 3, pool="none").eval()
    grid, children = model.grid(), model.features(torch.rand(1, 1, 24, 32))
    assert grid is not None
    assert tuple(map(len, grid)) == children.poses.shape[1:3] == (6, 8)


def test_decoder() -> None:
    model = create_model("backbone_capsnet", (3, 32, 32), 4, decoder="deconv")
    assert model.decode(model(torch.rand(2, 3, 32, 32))).shape == (2, 3, 32, 32)


@pytest.mark.parametrize("name", ["hf-hub:user/model", "local-dir:/tmp", "../x"])
def test_backbone_of_timm_is_a_plain_name(name: str) -> None:
    with raises_about(ConfigError, "backbone", name):
        make_backbone(f"timm:{name}", (3, 32, 32))
