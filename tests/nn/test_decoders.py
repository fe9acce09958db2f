from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import DECODERS, DeconvDecoder, MLPDecoder

SHAPES = [(1, 28, 28), (3, 32, 32), (2, 33, 30), (1, 1, 1), (4, 5, 7)]


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", DECODERS.names())
def test_every_decoder_paints_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    decoder = DECODERS[name](5, 8, shape)
    images = decoder(10 * torch.randn(2, 5, 8))
    assert images.shape == (2, *shape)
    assert images.min() >= 0
    assert images.max() <= 1


@pytest.mark.parametrize("name", DECODERS.names())
def test_gradient(name: str) -> None:
    decoder = DECODERS[name](2, 3, (1, 5, 4)).double()
    poses = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(decoder, poses)


@pytest.mark.parametrize("name", DECODERS.names())
def test_decoder_reads_every_dimension(name: str) -> None:
    decoder = DECODERS[name](4, 3, (1, 12, 12))
    poses = torch.randn(6, 4, 3, requires_grad=True)
    decoder(poses).square().sum().backward()
    assert poses.grad is not None
    assert (poses.grad.abs().sum(0) > 0).all()


def test_decoder_sizes_of_paper() -> None:
    layers = [layer for layer in MLPDecoder(10, 16, (1, 28, 28)).layers if isinstance(layer, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(160, 512), (512, 1024), (1024, 784)]
    assert count(MLPDecoder(10, 16, (1, 28, 28))) == 8_215_728 - 6_804_384


def test_hidden_sizes_option() -> None:
    assert count(MLPDecoder(2, 3, (1, 2, 2), hidden=())) == 6 * 4 + 4
    assert count(MLPDecoder(2, 3, (1, 2, 2), hidden=(5,))) == 6 * 5 + 5 + 5 * 4 + 4


def test_deconv_parameter_count() -> None:
    share = count(DeconvDecoder(10, 16, (1, 28, 28))) / count(MLPDecoder(10, 16, (1, 28, 28)))
    assert share == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("channels", [(16, 8), (1, 2, 3, 4)])
def test_deconv_requires_three_channel_counts(channels: tuple[int, ...]) -> None:
    with raises_about(ConfigError, "channels:", channels):
        DeconvDecoder(10, 16, (1, 28, 28), channels=channels)  # pyright: ignore[reportArgumentType]
