"""Convolutional networks without capsules: the baselines of the papers, and a small one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from torchcaps.models._base import ImageModel, ImageShape, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, ScoreHead, maps_as_capsules
from torchcaps.nn import InstanceStandardize
from torchcaps.types import Capsules


class CNN(ImageModel):
    """Convolutional network with one score per class.

    Each class is a capsule of one dimension, so that all tools for capsule networks also work with a CNN: its pose is
    the score, its activation the softmax over the scores.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        stem: Module from images [B, C, H, W] to maps [B, C', H', W'].
        head: Layers from maps to scores [B, num_classes].
        min_size: Smallest height and width of an image, for layers that accept any size from there on.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 1] and activations [B, J].

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = CNN((1, 8, 8), 3, nn.Conv2d(1, 4, 3), [nn.Flatten(), nn.Linear(144, 3)])
        >>> model(torch.rand(2, 1, 8, 8)).poses.shape
        torch.Size([2, 3, 1])
    """

    default_loss = "cross_entropy"
    ranks = (1, 2, 3)

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        stem: nn.Module,
        head: Sequence[nn.Module],
        *,
        min_size: int | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem = stem
        self.head = ScoreHead(*head)
        if min_size is not None:
            self.any_size, self.min_size = True, min_size

    def features(self, images: Tensor) -> Capsules:
        """Return the feature maps as a grid of capsules [B, H', W', 1, C']."""
        self.check_images(images)
        return maps_as_capsules(self.stem(images))


@register_model("cnn_baseline")
def cnn_baseline(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.5) -> CNN:
    """The paper's baseline: conv 5x5 with 256, 256, 128 channels, fully connected 328 and 192; 35.4 M parameters.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    channels, height, width = image_shape
    stem = ConvStem(
        nn.Conv2d(channels, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 128, 5, padding=2),
        nn.ReLU(),
    )
    head = [
        nn.Flatten(),
        nn.Linear(128 * height * width, 328),
        nn.ReLU(),
        nn.Linear(328, 192),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(192, num_classes),
    ]
    return CNN(image_shape, num_classes, stem, head)


@register_model("cnn_small")
def cnn_small(image_shape: ImageShape, num_classes: int, *, hidden: int = 64, dropout: float = 0.25) -> CNN:
    """A convolutional network for two cores: three strided 3x3 convolutions and one hidden layer.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        hidden: Size of the hidden layer; it sets the number of parameters, as a control of equal size needs.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    channels, height, width = image_shape
    stem = ConvStem(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1),
        nn.ReLU(),
    )
    head = [
        nn.Flatten(),
        nn.Linear(64 * ((height + 3) // 4) * ((width + 3) // 4), hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, num_classes),
    ]
    return CNN(image_shape, num_classes, stem, head)


@register_model("cnn_smallnorb")
def cnn_smallnorb(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.5) -> CNN:
    """The baseline of Hinton et al. 2018: conv 5x5 with 32 and 64 channels, each pooled, and 1024 hidden units.

    4,253,349 parameters for images of (2, 32, 32) and five classes.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    channels, height, width = image_shape
    check_min_size(image_shape, 4)
    convs = ConvStem(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    head = [
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 1024),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(1024, num_classes),
    ]
    return CNN(image_shape, num_classes, nn.Sequential(InstanceStandardize(), convs), head)


# (kernel, stride) of `conv_stem`, pooling included, and the side of the smallest image that it accepts.
STEM_CONVS = ((3, 1), (3, 1), (2, 2), (3, 1), (3, 1))
STEM_MIN_SIZE = 14


def conv_stem(image_shape: ImageShape) -> nn.Sequential:
    """Return four 3x3 convolutions of 64, 64, 128 and 128 channels, with average pooling after the second.

    Images [B, C, H, W] give maps [B, 128, H', W'], 8x8 positions for 28x28 pixels. `kmeans_capsnet` and its control
    `cnn_avgpool` share this stem.
    """
    check_min_size(image_shape, STEM_MIN_SIZE)
    return nn.Sequential(
        nn.Conv2d(image_shape[0], 64, 3),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(64, 128, 3),
        nn.ReLU(),
        nn.Conv2d(128, 128, 3),
        nn.ReLU(),
    )


@register_model("cnn_avgpool")
def cnn_avgpool(image_shape: ImageShape, num_classes: int) -> CNN:
    """The control: four convolutions, the average over all positions, one hidden layer; accepts images of any size."""
    stem = ConvStem(*conv_stem(image_shape))
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, num_classes)]
    return CNN(image_shape, num_classes, stem, head, min_size=STEM_MIN_SIZE)
