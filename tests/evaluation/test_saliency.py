from __future__ import annotations

import builtins
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.errors import ConfigError, MissingPackageError, UnknownNameError
from torchcaps.evaluation import SALIENCY, by_deletion, deletion_curve, receptive_fields, saliency
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import MarginLoss
from torchcaps.types import Capsules


class Corner(ImageModel):
    """A network that sees the pixel at row 1, column 2 alone: the more of it, the more class 1."""

    def __init__(self) -> None:
        super().__init__((1, 4, 5), 2)
        self.stem = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.stem.weight)

    def forward(self, images: Tensor) -> Capsules:
        scores = torch.stack([torch.zeros(len(images)), 4 * self.stem(images)[:, 0, 1, 2]], dim=1)
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=1))


@pytest.mark.parametrize("name", ["capsnet_small", "matrix_capsnet_small", "branched_capsnet"])
@pytest.mark.parametrize("method", SALIENCY.names())
def test_maps_are_shares(name: str, method: str) -> None:
    torch.manual_seed(0)
    model = create_model(name).eval()
    images = torch.rand(2, *model.image_shape)
    maps = saliency(model, images, method=method)
    assert maps.shape == (2, *model.image_shape[1:])
    assert (maps >= 0).all()
    assert torch.allclose(maps.sum(dim=(1, 2)), torch.ones(2), atol=1e-4)
    assert not maps.requires_grad


SHAPES = {
    "capsnet_1d": (2, 24),
    "matrix_capsnet_1d": (2, 24),
    "cnn_1d": (2, 24),
    "capsnet_3d": (1, 14, 14, 14),
    "token_capsnet": (5, 1, 9),
    "token_mean": (5, 1, 9),
}


@pytest.mark.parametrize("method", SALIENCY.names())
@pytest.mark.parametrize("name", SHAPES)
def test_maps_of_signals_volumes_and_tokens_are_shares(name: str, method: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, SHAPES[name], 3).eval()
    if method == "routing" and name in ("cnn_1d", "token_mean"):
        return
    images = torch.rand(2, *model.image_shape)
    images[1, ..., 6:] = 0
    maps = saliency(model, images, method=method)
    assert maps.shape == (2, *model.image_shape[1:])
    assert (maps >= 0).all()
    assert torch.allclose(maps.flatten(1).sum(dim=1), torch.ones(2), atol=1e-4)
    if model.reads_tokens:
        assert not maps[1, ..., 6:].any()


def test_token_that_decides_is_the_most_relevant() -> None:
    torch.manual_seed(0)
    model = create_model("token_capsnet", (4, 1, 6), 2, routing="dynamic", dropout=0).eval()
    # All tokens but one are equal in all channels, which normalisation makes 0; the channel of the other is the class.
    images, labels = torch.full((256, 4, 1, 6), 0.1), torch.arange(256) % 2
    places = torch.randint(6, (256,))
    images[torch.arange(256), labels, 0, places] = 1.0
    optimiser, loss = torch.optim.Adam(model.parameters(), lr=0.01), MarginLoss()
    for _ in range(30):
        optimiser.zero_grad()
        loss(model(images), labels).backward()
        optimiser.step()
    assert (model(images).activations.argmax(dim=1) == labels).float().mean() > 0.95
    maps = saliency(model, images, labels)[:, 0]  # [B, N]
    # Convolutions mix a token with two neighbours on each side.
    near = (maps.argmax(dim=1) - places).abs() <= 2
    assert near.float().mean() > 0.9


def test_integrated_gradients_find_the_pixel() -> None:
    maps = saliency(Corner().eval(), torch.ones(2, 1, 4, 5), torch.tensor([1, 1]), "ig")
    assert torch.allclose(maps[:, 1, 2], torch.ones(2))


def test_receptive_field_is_that_of_the_convolutions() -> None:
    fields = receptive_fields(create_model("capsnet_small").eval(), "head")
    assert fields.shape == (9, 28, 28)
    assert torch.allclose(fields.sum(dim=(1, 2)), torch.ones(9))
    # Kernels 5, 5, 5 with strides 1, 2, 2: 17 pixels, 4 apart.
    rows, columns = (fields[4] > 0).nonzero().T
    assert (int(rows.min()), int(rows.max())) == (4, 20)
    assert (int(columns.min()), int(columns.max())) == (4, 20)


def test_deletion_and_insertion_of_the_only_pixel_that_counts() -> None:
    model, images, labels = Corner().eval(), torch.rand(1, 1, 4, 5) * 0.2, torch.tensor([1])
    images[0, 0, 1, 2] = 1
    maps = torch.rand(1, 4, 5)
    maps[0, 1, 2] = 2
    whole, gone = (torch.sigmoid(4 * value) for value in (torch.tensor(1.0), images.median()))
    deleted = deletion_curve(model, images, labels, maps)[0]
    assert deleted.tolist() == pytest.approx([float(whole), *[float(gone)] * 20], abs=1e-6)
    inserted = deletion_curve(model, images, labels, maps, insert=True)[0]
    assert inserted.tolist() == pytest.approx([float(gone), *[float(whole)] * 20], abs=1e-6)
    # The other way round, the pixel is the last one.
    assert deletion_curve(model, images, labels, -maps)[0].tolist() == pytest.approx(
        [*[float(whole)] * 20, float(gone)], abs=1e-6
    )


def test_routing_is_more_faithful_than_random_on_digits() -> None:
    data = load_data("digits", "test").subset(range(16))
    model = create_model("capsnet_small", pretrained="mnist_dynamic")
    rows = {row.name: row.accuracies for row in by_deletion(model, data, methods=["routing", "random"]).rows}
    assert rows["routing"][0] < rows["random"][0] - 0.1
    assert rows["routing"][1] > rows["random"][1] + 0.1


def test_network_without_finite_values_gives_no_table() -> None:
    broken = create_model("cnn_small")
    for parameter in broken.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    with raises_about(ConfigError, "model", "NaN", "digits"):
        by_deletion(broken, load_data("digits", "test").subset(range(3)), methods=["random"])


def test_methods_of_a_network_without_routing() -> None:
    data = load_data("digits", "test").subset(range(3))
    result = by_deletion(create_model("cnn_small"), data)
    assert [row.name for row in result.rows] == ["centre", "gradcam", "ig", "random"]
    assert all(0 <= value <= 1 for row in result.rows for value in row.accuracies)


def test_centre_is_the_same_map_for_every_image() -> None:
    maps = saliency(create_model("cnn_small").eval(), torch.rand(2, 1, 28, 28), method="centre")
    assert torch.equal(maps[0], maps[1])
    assert int(maps[0].argmax()) in (13 * 28 + 13, 13 * 28 + 14, 14 * 28 + 13, 14 * 28 + 14)


def test_mistakes() -> None:
    images = torch.rand(1, 1, 28, 28)
    with raises_about(UnknownNameError, "gradcma"):
        saliency(create_model("cnn_small").eval(), images, method="gradcma")
    with raises_about(ConfigError, "method", "CNN"):
        saliency(create_model("cnn_small").eval(), images, method="routing")
    with raises_about(ConfigError, "data"):
        by_deletion(create_model("cnn_small"), load_data("digits", "test").subset([]))


def test_without_captum(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "captum":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    model = create_model("cnn_small").eval()
    with raises_about(MissingPackageError, "captum", "torchcaps[explain]"):
        saliency(model, torch.rand(1, 1, 28, 28), method="ig")
    with pytest.warns(UserWarning, match="torchcaps\\[explain\\]"):
        result = by_deletion(model, load_data("digits", "test").subset(range(2)))
    assert [row.name for row in result.rows] == ["centre", "random"]
