"""Relevance by routing, against products of matrices written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.evaluation import routing_relevance, strongest_children
from torchcaps.models import ImageModel, create_model, list_models
from torchcaps.nn import CapsConv1d, CapsConv2d, CapsLinear
from torchcaps.types import Capsules


def shares(coupling: Tensor, activations: Tensor) -> Tensor:
    """c_ij a_i / sum_k c_kj a_k, [B, I, J]."""
    weight = coupling * activations[:, :, None]
    return weight / weight.sum(dim=1, keepdim=True)


class TwoLayers(ImageModel):
    """Two dense capsule layers, with a slice and a concatenation between them."""

    def __init__(self) -> None:
        super().__init__((1, 4, 4), 3)
        self.first = CapsLinear(8, 5, in_dim=2, out_dim=4)
        self.head = CapsLinear(5, 3, in_dim=4, out_dim=4)

    def forward(self, images: Tensor) -> Capsules:
        poses = images.view(-1, 8, 2)
        middle = self.first(Capsules(poses, poses.norm(dim=-1)))
        halves = [Capsules(*(part[:, a:b] for part in middle)) for a, b in ((3, 5), (0, 3))]
        return self.head(Capsules(*(torch.cat(parts, dim=1) for parts in zip(*halves, strict=True))))


def test_two_dense_layers_are_a_product_of_shares() -> None:
    torch.manual_seed(0)
    model, images = TwoLayers().eval(), torch.rand(3, 1, 4, 4)
    found = routing_relevance(model, images, torch.tensor([0, 2, 1]))
    poses = images.view(-1, 8, 2)
    below = Capsules(poses, poses.norm(dim=-1))
    with torch.no_grad():
        middle = model.first(below)
        order = [3, 4, 0, 1, 2]
        between = Capsules(*(part[:, order] for part in middle))
        lower = shares(model.first.trace(below).coupling[-1], below.activations)[:, :, order]  # [B, 8, 5]
        upper = shares(model.head.trace(between).coupling[-1], between.activations)  # [B, 5, 3]
    product = torch.bmm(lower, upper)  # [B, 8, 3]
    expected = torch.stack([product[0, :, 0], product[1, :, 2], product[2, :, 1]])
    assert found.layers == ("first", "head")
    assert torch.allclose(found.primary[0].relevance, expected / expected.sum(dim=1, keepdim=True), atol=1e-6)


class ConvLayers(ImageModel):
    """A convolutional capsule layer below a dense one."""

    def __init__(self) -> None:
        super().__init__((1, 4, 4), 2)
        self.first = CapsConv2d(1, 2, kernel_size=2, stride=2, dims=(4, 4), routing="em")
        self.head = CapsLinear(8, 2, in_dim=4, out_dim=4)

    def forward(self, images: Tensor) -> Capsules:
        poses = images.view(-1, 4, 4, 1, 1) * torch.arange(1.0, 5.0)
        return self.head(self.first(Capsules(poses, images.view(-1, 4, 4, 1))))


def test_convolutional_layer_carries_relevance_to_its_own_window() -> None:
    torch.manual_seed(0)
    model, images = ConvLayers().eval(), torch.rand(1, 1, 4, 4)
    found = routing_relevance(model, images, torch.tensor([1]))
    poses = images.view(-1, 4, 4, 1, 1) * torch.arange(1.0, 5.0)
    below = Capsules(poses, images.view(-1, 4, 4, 1))
    with torch.no_grad():
        middle = model.first(below).flatten()
        upper = shares(model.head.trace(middle).coupling[-1], middle.activations)[0, :, 1].view(2, 2, 2)  # [H, W, J]
        coupling = model.first.trace(below).coupling[-1].view(2, 2, 4, 2)  # [H', W', K*K, J]
    expected = torch.zeros(4, 4)
    for row in range(2):
        for column in range(2):
            window = images[0, 0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(1, 4)
            lower = shares(coupling[row, column][None], window)[0]  # [K*K, J]
            values = (lower * upper[row, column]).sum(dim=1).view(2, 2)
            expected[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = values
    assert torch.allclose(found.primary[0].relevance[0, :, :, 0], expected / expected.sum(), atol=1e-5)


ROUTED = [name for name in list_models() if "small" in name and "caps" in name] + ["branched_capsnet", "kmeans_capsnet"]


@pytest.mark.parametrize("name", ROUTED)
def test_relevance_of_every_kind_of_network(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name).eval()
    images = torch.rand(2, *model.image_shape)
    before = {key: parameter.requires_grad for key, parameter in model.named_parameters()}
    found = routing_relevance(model, images)
    total = sum(part.relevance.flatten(1).sum(dim=1) for part in found.primary)
    assert torch.allclose(torch.as_tensor(total), torch.ones(2), atol=1e-4)
    assert all((part.relevance >= 0).all() for part in found.primary)
    with torch.no_grad():
        assert torch.allclose(found.activations, model(images).activations, atol=1e-5)
    # The network is as it was: no hook, and trainable.
    assert {key: parameter.requires_grad for key, parameter in model.named_parameters()} == before
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["cnn_small", "kuramoto_net"])
def test_network_without_capsule_layers(name: str) -> None:
    model = create_model(name).eval()
    with raises_about(ConfigError, "model", type(model).__name__):
        routing_relevance(model, torch.rand(1, *model.image_shape))


@pytest.mark.parametrize("labels", [[0], [0, 10], [-1, 0]])
def test_wrong_labels(labels: list[int]) -> None:
    with raises_about(ShapeError, "labels", labels):
        routing_relevance(create_model("capsnet_small").eval(), torch.rand(2, 1, 28, 28), torch.tensor(labels))


class SignalLayers(ImageModel):
    """A capsule layer over time below a dense one."""

    ranks = (1,)

    def __init__(self) -> None:
        super().__init__((1, 6), 2)
        self.first = CapsConv1d(1, 2, kernel_size=2, stride=2, dims=(4, 4), routing="em")
        self.head = CapsLinear(6, 2, in_dim=4, out_dim=4)

    def forward(self, images: Tensor) -> Capsules:
        poses = images.view(-1, 6, 1, 1) * torch.arange(1.0, 5.0)
        return self.head(self.first(Capsules(poses, images.view(-1, 6, 1))))


def test_samples_of_a_signal_receive_the_relevance_of_their_window() -> None:
    torch.manual_seed(0)
    model, signals = SignalLayers().eval(), torch.rand(1, 1, 6)
    found = routing_relevance(model, signals, torch.tensor([1]))
    below = Capsules(signals.view(-1, 6, 1, 1) * torch.arange(1.0, 5.0), signals.view(-1, 6, 1))
    with torch.no_grad():
        middle = model.first(below).flatten()
        upper = shares(model.head.trace(middle).coupling[-1], middle.activations)[0, :, 1].view(3, 2)  # [T', J]
        coupling = model.first.trace(below).coupling[-1]  # [T', K, J]
        lower = shares(coupling, signals.view(3, 2))  # [T', K, J]
    expected = torch.einsum("tkj,tj->tk", lower, upper).flatten()
    assert torch.allclose(found.primary[0].relevance[0, :, 0], expected / expected.sum(), atol=1e-5)
    assert [len(child["place"]) for child in strongest_children(found, 0, 2)] == [1, 1]


def test_tokens_are_children_and_padding_has_no_relevance() -> None:
    torch.manual_seed(0)
    model = create_model("token_capsnet", (4, 1, 7), 3, routing="dynamic").eval()
    images = torch.rand(2, 4, 1, 7)
    images[1, :, :, 5:] = 0
    found = routing_relevance(model, images, torch.tensor([0, 2]))
    children = model.features(images)
    with torch.no_grad():
        expected = shares(model.head.trace(children).coupling[-1], children.activations)  # [B, N, J]
    assert torch.allclose(found.primary[0].relevance[0], expected[0, :, 0], atol=1e-5)
    assert torch.allclose(found.primary[0].relevance[1], expected[1, :, 2], atol=1e-5)
    assert found.primary[0].relevance[1, 5:].tolist() == [0, 0]
    assert strongest_children(found, 1, 1)[0]["place"] == []


def test_strongest_children() -> None:
    model = create_model("capsnet_small").eval()
    found = routing_relevance(model, torch.rand(2, 1, 28, 28))
    rows = strongest_children(found, 1, 5)
    part = found.primary[0]
    assert [row["relevance"] for row in rows] == part.relevance[1].flatten().sort(descending=True).values[:5].tolist()
    best = rows[0]
    place = (*best["place"], best["type"])
    assert len(place) == 3
    assert float(part.relevance[1][place]) == best["relevance"]
    assert float(part.capsules.activations[1][place]) == best["activation"]
    assert sum(best["coupling"]) == pytest.approx(1, abs=1e-5)
    assert isinstance(model.head, nn.Module)
