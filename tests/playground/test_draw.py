from __future__ import annotations

import base64
from typing import Any

import torch

from torchcaps.data import to_float
from torchcaps.playground import Network
from torchcaps.playground.draw import Look, look
from torchcaps.playground.picture import Source
from torchcaps.types import Capsules

from .conftest import unpack


@torch.inference_mode()
def test_every_capsule_gives_its_length_and_draws_alone(ask: Any, network: Network) -> None:
    seen = ask("draw/look", source={"sample": 7})
    image = to_float(network.samples.images[7:8])
    capsules = network.model(image)
    assert torch.allclose(torch.tensor(seen["activations"]), capsules.activations[0], atol=1e-5)
    assert torch.equal(unpack(seen["image"])[0, ..., 0], network.samples.images[7, 0])
    drawn = unpack(seen["reconstructions"])
    assert drawn.shape == (10, 28, 28, 1)
    for label in (0, 9):
        alone = network.model.decode(capsules, torch.tensor([label]))
        assert (drawn[label, ..., 0] / 255 - alone[0, 0]).abs().max() < 0.01


def test_a_drawing_is_looked_at_as_a_digit(ask: Any) -> None:
    ink = base64.b64encode(bytes(255 * (40 <= n % 112 < 52) for n in range(112 * 112))).decode()
    seen = ask("draw/look", source={"drawing": {"width": 112, "height": 112, "pixels": ink}})
    rows = (unpack(seen["image"])[0, ..., 0] > 100).any(dim=1)
    assert int(rows.sum()) == 20


def test_two_samples_lie_on_top_of_each_other(ask: Any) -> None:
    both, first = (ask("draw/look", source=source)["image"] for source in ({"sample": 3, "second": 5}, {"sample": 3}))
    assert unpack(both).sum() > 1.3 * unpack(first).sum()


def test_samples_come_class_by_class(ask: Any, network: Network) -> None:
    some = ask("draw/samples", start=10, count=12)
    assert some["labels"] == [*range(10), 0, 1]
    assert torch.equal(unpack(some["images"])[1, ..., 0], network.samples.images[11, 0])
    assert ask("draw/samples", start=len(network.samples) + 5, count=3)["labels"] == []


def test_a_sample_that_is_not_there_is_told(refuse: Any) -> None:
    assert refuse("draw/look", source={"sample": 2000}) == (400, "sample: expected a number from 0 to 199, got 2000")
    assert refuse("draw/look", source={"sample": 1, "second": 2000})[0] == 400


def test_without_a_decoder_nothing_is_drawn(network: Network) -> None:
    class Silent(torch.nn.Module):
        image_shape = (1, 28, 28)
        num_classes = 10
        decoder = None

        def forward(self, images: torch.Tensor) -> Capsules:
            return Capsules(torch.zeros(1, 10, 4), torch.zeros(1, 10))

    silent: Any = Silent()
    seen = look(Look(source=Source(sample=0)), Network("silent", "", silent, network.samples))
    assert seen.reconstructions is None
