from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError, UnknownNameError
from torchcaps.models import CapsNet, create_model
from torchcaps.nn import DynamicRouting


def parameters(name: str, **options: object) -> int:
    with torch.device("meta"):
        model = create_model(name, **options)  # pyright: ignore[reportArgumentType]
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_count_of_paper() -> None:
    assert parameters("capsnet") == 8_215_728
    assert parameters("capsnet", decoder=None) == 6_804_384
    assert parameters("capsnet", decoder="none") == 6_804_384


def test_sizes_of_paper() -> None:
    with torch.device("meta"):
        model = create_model("capsnet")
        grid = model.features(torch.zeros(2, 1, 28, 28))
    assert isinstance(model, CapsNet)
    assert model.stem[0].weight.shape == (256, 1, 9, 9)
    assert grid.poses.shape == (2, 6, 6, 32, 8)
    assert model.head.weight.shape == (1152, 10, 8, 16)
    assert model.head.bias is not None
    assert model.head.bias.shape == (10, 16)


@pytest.mark.parametrize("name", ["capsnet", "capsnet_small"])
def test_activations_are_pose_lengths(name: str) -> None:
    out = create_model(name, image_shape=(1, 19, 19))(torch.rand(2, 1, 19, 19))
    torch.testing.assert_close(out.activations, out.poses.square().sum(-1).sqrt())


@pytest.mark.parametrize("routing", ["dynamic", {"name": "dynamic", "iters": 1}, DynamicRouting(iters=2, leaky=True)])
def test_routing_option(routing: object) -> None:
    model = create_model("capsnet_small", routing=routing)
    iters = {"dynamic": 3}.get(str(routing)) or (routing["iters"] if isinstance(routing, dict) else 2)
    assert model.trace(torch.rand(1, 1, 28, 28)).iters == iters


def test_unknown_routing() -> None:
    with raises_about(UnknownNameError, "unknown router 'dynamik'", "dynamic"):
        create_model("capsnet_small", routing="dynamik")
    with raises_about(ConfigError, "unknown option 'iter'", "iters", "DynamicRouting"):
        create_model("capsnet_small", routing={"name": "dynamic", "iter": 1})


def test_trace_has_every_primary_capsule() -> None:
    trace = create_model("capsnet_small", image_shape=(1, 20, 24), num_classes=4).trace(torch.rand(2, 1, 20, 24))
    # 20 -> 16 -> 6 -> 1 and 24 -> 20 -> 8 -> 2, with 16 types at each position.
    assert trace.coupling.shape == (3, 2, 32, 4)
    torch.testing.assert_close(trace.coupling[0], torch.full((2, 32, 4), 0.25))


def test_too_small_image_names_minimum() -> None:
    with raises_about(ShapeError, "image_shape:", "at least 17", "got (1, 16, 28)"):
        create_model("capsnet", image_shape=(1, 16, 28))
