"""Backbones: networks from images to features, by name, as modules, or from timm."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from torchcaps._files import MAX_TENSORS, open_regular
from torchcaps._registry import Registry
from torchcaps.errors import CheckpointError, ConfigError, ShapeError, TorchcapsError
from torchcaps.models._base import ImageShape
from torchcaps.models._layers import ResidualBlock, channels_last

TIMM = "timm:"


class Layout(NamedTuple):
    """Channels and number of residual blocks of each stage of a ResNet."""

    widths: tuple[int, ...]
    blocks: tuple[int, ...]


class ConvBackbone(nn.Module):
    """Base of the convolutional networks without a head that have a name.

    Attributes:
        num_features: Number of channels of the output.
        stride: Number of pixels between neighbouring positions of the output.
    """

    num_features: int
    stride: int


class ResNet(ConvBackbone):
    """Residual network without a head (He et al. 2016), with a stem for the size of the images.

    Colours are standardised over the training images, by running statistics: how bright an image is, and how strong its
    contrast, may tell its class. The stem is a 3x3 convolution for images of less than 48 pixels, a 3x3 convolution
    with stride 2 for less than 96, and a 7x7 convolution with stride 2 and pooling for larger ones.

    Args:
        image_shape: Channels, height and width of the images.
        layout: Channels and blocks of the stages; each stage after the first halves the resolution.

    Shape:
        images [B, C, H, W]; returns maps [B, num_features, H', W'].

    Example:
        >>> ResNet((3, 64, 64), Layout((32, 64, 128), (1, 1, 1)))(torch.rand(2, 3, 64, 64)).shape
        torch.Size([2, 128, 8, 8])
    """

    def __init__(self, image_shape: ImageShape, layout: Layout) -> None:
        super().__init__()
        width = layout.widths[0]
        self.standardize = nn.BatchNorm2d(image_shape[0], affine=False)
        self.stem, stride = _stem(image_shape, width, nn.ReLU(), padded=True)
        self.stages = nn.Sequential()
        before = width
        for stage, (after, count) in enumerate(zip(layout.widths, layout.blocks, strict=True)):
            blocks = [ResidualBlock(before, after, 2 if stage else 1)]
            blocks += [ResidualBlock(after, after) for _ in range(count - 1)]
            self.stages.append(nn.Sequential(*blocks))
            before = after
        self.num_features = before
        self.stride = stride * 2 ** (len(layout.widths) - 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(self.stem(channels_last(self.standardize(images))))


class VGG(ConvBackbone):
    """Pairs of 3x3 convolutions with pooling between them (Simonyan and Zisserman 2015), for small images.

    The stem is that of `ResNet` without padding, and a 2x2 convolution for images of less than 48 pixels. Then come
    groups of two 3x3 convolutions with batch normalisation and GELU; the first one of a group ends with 2x2 max
    pooling, so that most of the work is done at a low resolution. With widths of 64, 256 and 256 it is close to the
    network that Jordan (2024) trains on CIFAR-10 in ten epochs.

    Args:
        image_shape: Channels, height and width of the images.
        widths: Channels of each group.

    Shape:
        images [B, C, H, W]; returns maps [B, num_features, H', W'].

    Example:
        >>> VGG((3, 32, 32), (64, 240, 240))(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 240, 3, 3])
    """

    def __init__(self, image_shape: ImageShape, widths: tuple[int, ...]) -> None:
        super().__init__()
        before = widths[0] // 2
        self.standardize = nn.BatchNorm2d(image_shape[0], affine=False)
        self.stem, stride = _stem(image_shape, before, nn.GELU(), padded=False)
        self.groups = nn.Sequential()
        for after in widths:
            layers = [*_conv_norm(before, after, pool=True), nn.GELU(), *_conv_norm(after, after), nn.GELU()]
            self.groups.append(nn.Sequential(*layers))
            before = after
        self.num_features = before
        self.stride = stride * 2 ** len(widths)

    def forward(self, images: Tensor) -> Tensor:
        return self.groups(self.stem(channels_last(self.standardize(images))))


def _stem(image_shape: ImageShape, width: int, activation: nn.Module, *, padded: bool) -> tuple[nn.Sequential, int]:
    """Return the first layers for images of this shape, and their stride."""
    side = min(image_shape[1:])
    kernel, stride = (3 if padded else 2, 1) if side < 48 else (3, 2) if side < 96 else (7, 2)
    padding = kernel // 2 if padded else 0
    conv = nn.Conv2d(image_shape[0], width, kernel, stride, padding, bias=False)
    stem = nn.Sequential(conv, nn.BatchNorm2d(width), activation)
    if side < 96:
        return stem, stride
    return stem.append(nn.MaxPool2d(3, stride=2, padding=1)), 2 * stride


def _conv_norm(before: int, after: int, *, pool: bool = False) -> list[nn.Module]:
    """Return a 3x3 convolution, max pooling if `pool`, and batch normalisation."""
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return [conv, *([nn.MaxPool2d(2)] if pool else []), nn.BatchNorm2d(after)]


BACKBONES: Registry[Callable[[ImageShape], ConvBackbone]] = Registry("backbone")
BACKBONES.add("resnet8_thin", partial(ResNet, layout=Layout((16, 32, 64), (1, 1, 1))))
BACKBONES.add("resnet8", partial(ResNet, layout=Layout((32, 64, 128), (1, 1, 1))))
BACKBONES.add("resnet10", partial(ResNet, layout=Layout((32, 64, 128, 256), (1, 1, 1, 1))))
BACKBONES.add("resnet14", partial(ResNet, layout=Layout((32, 64, 128), (2, 2, 2))))
BACKBONES.add("resnet18", partial(ResNet, layout=Layout((64, 128, 256, 512), (2, 2, 2, 2))))
BACKBONES.add("vgg7", partial(VGG, widths=(64, 240, 240)))


def make_backbone(backbone: str | nn.Module, image_shape: ImageShape, weights: str | Path | None = None) -> nn.Module:
    """Return a backbone for images of this shape.

    Args:
        backbone: A name of `BACKBONES`, `timm:NAME`, or a module from images to features.
        image_shape: Channels, height and width of the images.
        weights: A safetensors file with the weights of the backbone; entries of a classifier in it are ignored.

    Returns:
        The module.

    Raises:
        UnknownNameError: If there is no backbone of the name.
        ConfigError: If timm cannot be imported or does not know the model.
        CheckpointError: If the weights are missing, damaged or of another network.
    """
    if isinstance(backbone, nn.Module):
        module = backbone
    elif isinstance(backbone, str) and backbone.startswith(TIMM):
        module = _from_timm(backbone.removeprefix(TIMM), image_shape)
    elif isinstance(backbone, str):
        module = BACKBONES[backbone](image_shape)
    else:
        raise ConfigError(f"backbone: expected a name or a module, got {type(backbone).__name__}")
    if weights is not None:
        load_backbone(module, Path(weights))
    return module


def _from_timm(name: str, image_shape: ImageShape) -> nn.Module:
    # A name such as hf-hub:USER/MODEL would be downloaded, or read from a folder.
    if not re.fullmatch(r"[\w.]+", name):
        raise ConfigError(f"backbone: expected the name of a model after '{TIMM}', got {name!r}")
    # A broken torchvision makes the import of timm fail with any kind of error.
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except Exception as error:
        raise ConfigError(
            f"backbone: expected that timm can be imported for '{TIMM}{name}', got {type(error).__name__}: {error} "
            "(install timm, or use one of the built-in backbones or a module of your own)"
        ) from None
    options: dict[str, Any] = {"num_classes": 0, "global_pool": "", "in_chans": image_shape[0]}
    try:
        return timm.create_model(name, pretrained=False, **options)
    except Exception as error:
        raise ConfigError(f"backbone: expected a model of timm, got '{name}' ({error})") from None


def load_backbone(backbone: nn.Module, file: Path) -> None:
    """Load the weights of a backbone from a safetensors file.

    Args:
        backbone: The module.
        file: The file; entries that the backbone does not have, such as those of a classifier, are ignored.

    Raises:
        CheckpointError: If the file is missing or damaged, or lacks a weight of the backbone.
    """
    try:
        # The library would wait for the writer of a pipe.
        open_regular(file, MAX_TENSORS).close()
        stored = load_file(file)
    except FileNotFoundError:
        raise CheckpointError(f"weights: expected a safetensors file, but there is no '{file}'") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"weights: expected a safetensors file, got '{file}' ({error})") from None
    own = backbone.state_dict()
    for name, tensor in own.items():
        # Counters of batch normalisation are not always stored.
        if name not in stored and not name.endswith("num_batches_tracked"):
            raise CheckpointError(f"weights: expected an entry '{name}', got '{file}' without it (another network?)")
        if name in stored and stored[name].shape != tensor.shape:
            raise CheckpointError(
                f"weights: expected {tuple(tensor.shape)} for '{name}', got {tuple(stored[name].shape)} in '{file}'"
            )
    backbone.load_state_dict({name: stored[name] for name in own if name in stored}, strict=False)


def feature_shape(backbone: nn.Module, image_shape: ImageShape) -> tuple[int, ...]:
    """Return the shape of the features of one image, without the batch axis, by trying it.

    Args:
        backbone: The module.
        image_shape: Channels, height and width of the images.

    Returns:
        (C, H, W), (N, C) or (C,).

    Raises:
        ShapeError: If the backbone cannot process images of this shape or returns something else.
    """
    weight = next(backbone.parameters(), torch.empty(0))
    modes = {module: module.training for module in backbone.modules()}
    backbone.eval()
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(1, *image_shape, dtype=weight.dtype, device=weight.device))
    except TorchcapsError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ShapeError(f"image_shape: expected images for the backbone, got {image_shape} ({reason})") from None
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(features, Tensor) or features.dim() not in (2, 3, 4):
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ShapeError(f"backbone: expected features [B, C, H, W], [B, N, C] or [B, C], got {got}")
    return tuple(features.shape[1:])
