from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data, to_float
from torchcaps.errors import ShapeError
from torchcaps.models import create_model
from torchcaps.nn import CrossEntropyLoss


def test_parameter_count_of_paper() -> None:
    with torch.device("meta"):
        model = create_model("cnn_baseline")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e6, 1) == 35.4


@pytest.mark.parametrize("name", ["cnn_baseline", "cnn_small"])
def test_class_pose_is_score(name: str) -> None:
    out = create_model(name, image_shape=(1, 6, 7), num_classes=4).eval()(torch.rand(2, 1, 6, 7))
    assert out.poses.shape == (2, 4, 1)
    torch.testing.assert_close(out.activations, out.poses.squeeze(-1).softmax(-1))
    torch.testing.assert_close(out.activations.sum(-1), torch.ones(2))


@pytest.mark.parametrize("name", ["cnn_baseline", "cnn_small"])
def test_dropout_only_in_training(name: str) -> None:
    model = create_model(name, image_shape=(1, 6, 7), num_classes=4, dropout=0.9)
    images = torch.rand(2, 1, 6, 7)
    assert not torch.equal(model.train()(images).poses, model(images).poses)
    assert torch.equal(model.eval()(images).poses, model(images).poses)


def test_hidden_layer_sets_parameters_of_control() -> None:
    sizes = [sum(weight.numel() for weight in create_model("cnn_small", hidden=h).parameters()) for h in (64, 65)]
    # One more unit: a weight per position and channel of the 7x7 maps, a bias, and a weight per class.
    assert sizes == [257_162, 257_162 + 64 * 7 * 7 + 1 + 10]


@torch.no_grad()
def test_avgpool_takes_any_size() -> None:
    model = create_model("cnn_avgpool", num_classes=3).eval()
    assert sum(parameter.numel() for parameter in create_model("cnn_avgpool").parameters()) == 276_810
    for shape in ((14, 14), (28, 56), (40, 33)):
        assert model(torch.rand(2, 1, *shape)).poses.shape == (2, 3, 1)
    # The average ignores positions: an image shifted by the stride of the pooling gives the same scores.
    canvas = torch.zeros(2, 1, 60, 60)
    canvas[0, :, 20:34, 20:34] = canvas[1, :, 24:38, 22:36] = torch.rand(1, 14, 14)
    scores = model(canvas).poses
    torch.testing.assert_close(scores[0], scores[1])


def two_digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_data("digits", "train")
    chosen = ((data.labels == 0) | (data.labels == 1)).nonzero().squeeze(1)[:32]
    return to_float(data.images[chosen][:, :, 4:24, 4:24]), data.labels[chosen]


def test_avgpool_learns_two_digits() -> None:
    torch.manual_seed(0)
    images, labels = two_digits()
    model, loss = create_model("cnn_avgpool", image_shape=(1, 20, 20), num_classes=2), CrossEntropyLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(20):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.9  # pyright: ignore


def test_avgpool_too_small_image_names_minimum() -> None:
    with raises_about(ShapeError, "image_shape:", "at least 14", "got (1, 13, 28)"):
        create_model("cnn_avgpool", image_shape=(1, 13, 28))
