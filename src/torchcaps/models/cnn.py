"""Plain convolutional networks to compare with: the baselines of the papers, and a small one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import ShapeError
from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.nn import Standardise
from torchcaps.types import Capsules


class CNN(ImageModel):
    """Layers that end in one score per class.

    It speaks the language of capsules so that all tools work with it: each class is a capsule of one dimension whose
    pose is the score, poses [B, J, 1], and whose activation is the softmax of the scores, [B, J]. Layers that pool over
    all positions take images of any size, from `least` on.
    """

    loss = "cross_entropy"

    def __init__(
        self, image_shape: ImageShape, num_classes: int, layers: nn.Sequential, *, least: int | None = None
    ) -> None:
        super().__init__(image_shape, num_classes)
        # The faster layout for convolutions on a CPU.
        self.layers = layers.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if least is not None:
            self.any_size, self.least = True, least

    def forward(self, images: Tensor) -> Capsules:
        self.check_images(images)
        scores = self.layers(images)  # [B, J]
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))


@register_model("cnn_baseline")
def cnn_baseline(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.5) -> CNN:
    """The paper's baseline: conv 5x5 with 256, 256, 128 channels, fully connected 328 and 192; 35.4 M parameters."""
    channels, height, width = image_shape
    layers = nn.Sequential(
        nn.Conv2d(channels, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 128, 5, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * height * width, 328),
        nn.ReLU(),
        nn.Linear(328, 192),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(192, num_classes),
    )
    return CNN(image_shape, num_classes, layers)


@register_model("cnn_small")
def cnn_small(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.25) -> CNN:
    """A convolutional network for two cores: three strided 3x3 convolutions and one hidden layer."""
    channels, height, width = image_shape
    layers = nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * ((height + 3) // 4) * ((width + 3) // 4), 64),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(64, num_classes),
    )
    return CNN(image_shape, num_classes, layers)


@register_model("cnn_smallnorb")
def cnn_smallnorb(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.5) -> CNN:
    """The baseline of Hinton et al. 2018: conv 5x5 with 32 and 64 channels, each pooled, and 1024 hidden units.

    4,253,349 parameters for images of (2, 32, 32) and five classes.
    """
    channels, height, width = image_shape
    if min(height, width) < 4:
        raise ShapeError(f"image_shape: expected height and width of at least 4, got {image_shape}")
    layers = nn.Sequential(
        Standardise(),
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 1024),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(1024, num_classes),
    )
    return CNN(image_shape, num_classes, layers)


# What `conv_stem` makes one position of.
STEM_LEAST = 14


def conv_stem(image_shape: ImageShape) -> nn.Sequential:
    """Four 3x3 convolutions, 64, 64, 128 and 128 channels, halved by average pooling after the second.

    Images [B, C, H, W] give features [B, 128, H', W'], at 28x28 of 8x8 positions. `kmeans_capsnet` and its control,
    `cnn_avgpool`, differ in what comes after it alone.
    """
    if min(image_shape[1:]) < STEM_LEAST:
        raise ShapeError(f"image_shape: expected height and width of at least {STEM_LEAST}, got {image_shape}")
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
    """The control: four convolutions, the average over all positions, one hidden layer; images of any size."""
    layers = nn.Sequential(
        *conv_stem(image_shape),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, num_classes),
    )
    return CNN(image_shape, num_classes, layers, least=STEM_LEAST)
