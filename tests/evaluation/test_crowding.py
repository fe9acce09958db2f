from __future__ import annotations

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import by_distance
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


@pytest.fixture(scope="module")
def pairs() -> ImageDataset:
    return load_data("crowded_digits", "test", source="digits").subset(range(200))


class Decoder(torch.nn.Module):
    def forward(self, poses: Tensor) -> Tensor:
        return poses.sum(dim=1).view(-1, 1, 28, 28)


class Remembers(ImageModel):
    """Knows all pairs: the pose of a class is the digit of this class, or both digits, or only the first of them."""

    def __init__(self, data: ImageDataset, shows: str) -> None:
        super().__init__((1, 28, 28), 10)
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.decoder = Decoder()
        batch = data.batch(range(len(data)))
        assert batch.sources is not None
        self.known = {bytes(image.numpy()): place for place, image in enumerate(batch.images)}
        self.batch, self.shows = batch, shows

    def forward(self, images: Tensor) -> Capsules:
        poses, activations = torch.zeros(len(images), 10, 784), torch.zeros(len(images), 10)
        for row, image in enumerate((255 * images).round().to(torch.uint8)):
            place = self.known[bytes(image.numpy())]
            sources = to_float(self.batch.sources[place])  # pyright: ignore[reportOptionalSubscript]
            for label, source in zip(self.batch.labels[place], sources, strict=True):
                same = bool(self.batch.meta["identical"][place]) and self.shows != "one"
                shown = images[row] if same or self.shows == "both" else sources[0] if self.shows == "one" else source
                poses[row, label] = 0.2 * shown.flatten() if self.shows == "faint" else shown.flatten()
                activations[row, label] = 1
        return Capsules(poses, activations)


def shares(model: ImageModel, data: ImageDataset) -> dict[str, tuple[float, ...]]:
    return {row.name: row.accuracies for row in by_distance(model, data).rows}


def test_perfect_decodings_are_seen(pairs):
    found = shares(Remembers(pairs, "own"), pairs)
    # Two digits in one place are one.
    for kind in ("identical", "different"):
        assert found[f"{kind}, 10 to 14 pixels"] == (1, 1)
        assert found[f"{kind}, 1 to 3 pixels"] == (1, 1)


@pytest.mark.parametrize(("shows", "identical", "different"), [("one", 0, 0), ("both", 1, 0), ("faint", 0, 0)])
def test_decodings_of_something_else_are_not_seen(pairs, shows, identical, different):
    found = shares(Remembers(pairs, shows), pairs)
    assert found["identical, 10 to 14 pixels"] == (identical, 1)
    assert found["different, 10 to 14 pixels"] == (different, 1)


def test_needs_a_decoder_and_pairs(pairs):
    with raises_about(ConfigError, "run", "decoder"):
        by_distance(create_model("capsnet_small", decoder=None), pairs)
    with raises_about(ConfigError, "run", "'multimnist'"):
        by_distance(create_model("capsnet_small"), load_data("multimnist", "test", source="digits"))
