from __future__ import annotations

import base64
from typing import Any

import torch

from torchcaps.data import to_float
from torchcaps.evaluation import saliency
from torchcaps.playground import PlaygroundNetwork
from torchcaps.playground.draw import DrawRequest, predict
from torchcaps.playground.images import SampleSource
from torchcaps.playground.network import pretrained_network
from torchcaps.types import Capsules

from .conftest import unpack


@torch.inference_mode()
def test_lengths_and_reconstructions(ask: Any, network: PlaygroundNetwork) -> None:
    seen = ask("draw/predict", source={"sample": 7})
    image = to_float(network.samples.images[7:8])
    capsules = network.model(image)
    assert torch.allclose(torch.tensor(seen["activations"]), capsules.activations[0], atol=1e-5)
    assert torch.equal(unpack(seen["image"])[0, ..., 0], network.samples.images[7, 0])
    drawn = unpack(seen["reconstructions"])
    assert drawn.shape == (10, 28, 28, 1)
    for label in (0, 9):
        alone = network.model.decode(capsules, torch.tensor([label]))
        assert (drawn[label, ..., 0] / 255 - alone[0, 0]).abs().max() < 0.01


def test_relevance_of_the_prediction(ask: Any, network: PlaygroundNetwork) -> None:
    seen = unpack(ask("draw/predict", source={"sample": 4})["relevance"])[..., 0]  # [1, H, W]
    expected = saliency(network.model, to_float(network.samples.images[4:5]))  # [1, H, W]
    shown = (expected / expected.quantile(0.99)).clamp(max=1)
    assert (seen / 255 - shown).abs().max() < 0.01


def test_relevance_of_both_digits() -> None:
    pairs = pretrained_network("multimnist")
    seen = predict(DrawRequest(source=SampleSource(sample=1, second=3)), pairs)
    assert seen.relevance is not None
    first, second = unpack(seen.relevance.model_dump())[..., 0].float()  # each [H, W]
    assert first.max() == second.max() == 255
    assert (first - second).abs().max() > 25
    # Nothing is left on the network that other requests use.
    assert all(not layer._forward_hooks for layer in pairs.model.modules())


def test_drawing_is_normalised(ask: Any) -> None:
    ink = base64.b64encode(bytes(255 * (40 <= n % 112 < 52) for n in range(112 * 112))).decode()
    seen = ask("draw/predict", source={"drawing": {"width": 112, "height": 112, "pixels": ink}})
    rows = (unpack(seen["image"])[0, ..., 0] > 100).any(dim=1)
    assert int(rows.sum()) == 20


def test_two_samples_are_overlaid(ask: Any) -> None:
    both, first = (
        ask("draw/predict", source=source)["image"] for source in ({"sample": 3, "second": 5}, {"sample": 3})
    )
    assert unpack(both).sum() > 1.3 * unpack(first).sum()


def test_samples_are_interleaved(ask: Any, network: PlaygroundNetwork) -> None:
    some = ask("draw/samples", start=10, count=12)
    assert some["labels"] == [*range(10), 0, 1]
    assert torch.equal(unpack(some["images"])[1, ..., 0], network.samples.images[11, 0])
    assert ask("draw/samples", start=len(network.samples) + 5, count=3)["labels"] == []


def test_unknown_sample(refuse: Any) -> None:
    assert refuse("draw/predict", source={"sample": 2000}) == (400, "sample: expected a number from 0 to 199, got 2000")
    assert refuse("draw/predict", source={"sample": 1, "second": 2000})[0] == 400


def test_no_decoder_no_reconstructions(network: PlaygroundNetwork) -> None:
    class Silent(torch.nn.Module):
        image_shape = (1, 28, 28)
        num_classes = 10
        decoder = None
        temperature = None

        def forward(self, images: torch.Tensor) -> Capsules:
            return Capsules(torch.zeros(1, 10, 4), torch.zeros(1, 10))

    silent: Any = Silent()
    seen = predict(DrawRequest(source=SampleSource(sample=0)), PlaygroundNetwork("silent", "", silent, network.samples))
    assert seen.reconstructions is None
    assert seen.relevance is None
