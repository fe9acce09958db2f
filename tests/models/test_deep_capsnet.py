from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.models import DeepCapsNet, create_model
from torchcaps.models.deep_capsnet import CapsCell, RoutedCellConv
from torchcaps.nn import DynamicRouting, MarginLoss
from torchcaps.types import Capsules


def make(name: str = "deep_capsnet_small", **options: object) -> DeepCapsNet:
    torch.manual_seed(0)
    model = create_model(name, **options)  # pyright: ignore[reportArgumentType]
    assert isinstance(model, DeepCapsNet)
    return model


def test_parameters() -> None:
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in make("deep_capsnet").parameters()) == 8_480_305
        assert sum(parameter.numel() for parameter in make("deep_capsnet", decoder=None).parameters()) == 8_448_192


def test_sizes_of_paper() -> None:
    with torch.device("meta"):
        model = make("deep_capsnet", image_shape=(3, 32, 32))
        assert model.features(torch.zeros(2, 3, 32, 32)).poses.shape == (2, (16 + 4) * 32, 8)
    assert model.head.weight.shape == (640, 10, 8, 32)


@torch.no_grad()
def test_pose_lengths_stay_in_range() -> None:
    images = torch.rand(4, 1, 28, 28)
    # Before any training the running averages of the normalisation are not those of any images.
    for mode, least in ((True, 0.5), (False, 0.1)):
        model = make().train(mode)
        poses = model.stem(images).permute(0, 2, 3, 1).unsqueeze(-1)
        for cell in (*model.lower, model.upper):
            poses = cell(poses)
            assert poses.norm(dim=-1).mean() > least


@torch.no_grad()
def test_cell_adds_skip_connection() -> None:
    torch.manual_seed(0)
    cell, poses = CapsCell(3, 4, 5, 4).eval(), torch.randn(2, 7, 6, 3, 4)
    first = cell.first(poses)
    assert first.shape == (2, 4, 3, 5, 4)
    torch.testing.assert_close(cell(poses), cell.rest(first) + cell.skip(first))


@torch.no_grad()
def test_routed_layer_is_local() -> None:
    torch.manual_seed(0)
    layer = RoutedCellConv(3, 5, (4, 6), DynamicRouting())
    poses = torch.randn(2, 7, 6, 3, 4)
    out = layer(poses)
    assert out.shape == (2, 7, 6, 5, 6)
    # The votes at one inner position, from the patch of each type below it.
    patch = poses[1, 2:5, 1:4].permute(2, 3, 0, 1)  # [I, P, 3, 3]
    votes = torch.einsum("ipxy,opxy->io", patch, layer.conv.weight).view(1, 3, 5, 6)
    expected = layer.routing(votes, Capsules(poses[1:2, 3, 2], torch.ones(1, 3))).poses
    torch.testing.assert_close(out[1, 3, 2], expected[0])


@torch.no_grad()
def test_trace_ends_in_result() -> None:
    torch.manual_seed(0)
    layer, poses = RoutedCellConv(3, 5, (4, 6), DynamicRouting()), torch.randn(2, 7, 6, 3, 4)
    trace = layer.trace(poses)
    assert trace.coupling.shape == (3, 2 * 7 * 6, 3, 5)
    torch.testing.assert_close(trace.poses[-1].view(2, 7, 6, 5, 6), layer(poses))


def test_routers_are_not_shared() -> None:
    model = make(routing={"name": "em", "iters": 2})
    assert isinstance(model.upper.skip, RoutedCellConv)
    assert model.upper.skip.routing is not model.head.routing
    assert model.eval()(torch.rand(1, 1, 28, 28)).activations.isfinite().all()


@torch.no_grad()
def test_decoder_is_class_independent() -> None:
    model = make(image_shape=(1, 20, 20), num_classes=3)
    pose = torch.randn(16)
    images = []
    for label in range(3):
        poses = torch.randn(1, 3, 16)
        poses[0, label] = pose
        images.append(model.decode(Capsules(poses, torch.ones(1, 3)), torch.tensor([label])))
    assert torch.equal(images[0], images[1])
    assert torch.equal(images[0], images[2])


def test_without_a_decoder() -> None:
    model = make(decoder=None)
    with raises_about(ConfigError, "decode:", "got DeepCapsNet without one"):
        model.decode(Capsules(torch.zeros(1, 10, 16), torch.zeros(1, 10)))


def two_digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_data("digits", "train")
    chosen = ((data.labels == 0) | (data.labels == 1)).nonzero().squeeze(1)[:32]
    return to_float(data.images[chosen][:, :, 4:24, 4:24]), data.labels[chosen]


@pytest.mark.slow
def test_learns_two_digits() -> None:
    images, labels = two_digits()
    model, loss = make(image_shape=(1, 20, 20), num_classes=2, decoder=None), MarginLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(12):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.9  # pyright: ignore
