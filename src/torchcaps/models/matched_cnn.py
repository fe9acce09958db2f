"""The control of `CapsNet`: its convolutions, and a fully connected layer in place of the capsules.

After the ConvNet-CR of Gu, Tresp and Hu 2021: the units of the fully connected layer form one group per class, and the
decoder sees the group of one class, as it sees the pose of a class capsule.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageModel, ImageShape, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, conv_size, make_decoder, maps_as_capsules
from torchcaps.ops import squash
from torchcaps.types import Capsules

DIM = 16


class ClassGroups(nn.Module):
    """A fully connected layer with a group of units per class, and the activations of the classes.

    Args:
        in_features: Size of the flat maps.
        num_classes: Number of classes.
        squashed: Whether the activation of a class is the length of its squashed group, as in a capsule. Else it is
            the softmax over scores that are linear in all units.

    Shape:
        a grid of capsules, poses [B, H, W, 1, C]; returns poses [B, J, 16] and activations [B, J].
    """

    def __init__(self, in_features: int, num_classes: int, squashed: bool) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.hidden = nn.Linear(in_features, num_classes * DIM)
        self.scores = None if squashed else nn.Linear(num_classes * DIM, num_classes)

    def forward(self, children: Capsules) -> Capsules:
        units = self.hidden(children.poses.squeeze(-2).movedim(-1, 1).flatten(1))  # [B, J*16]
        if self.scores is None:
            poses = squash(units.unflatten(1, (self.num_classes, DIM)))  # [B, J, 16]
            return Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
        units = units.relu()
        return Capsules(units.unflatten(1, (self.num_classes, DIM)), self.scores(units).softmax(dim=-1))


class MatchedCNN(ImageModel):
    """Convolutional network with the convolutions of `capsnet_small` and a group of 16 units per class.

    The fully connected layer has as many weights as the matrices of the capsule layer. Nothing is routed.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        kernel: Size of all kernels.
        squashed: Whether the activation of a class is the length of its squashed group.
        decoder: Module from masked groups to images.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Example:
        >>> MatchedCNN((1, 28, 28), 10)(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        kernel: int = 5,
        squashed: bool = False,
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.default_loss = "margin" if squashed else "likelihood"
        check_min_size(image_shape, 4 * kernel - 3)
        self.stem, sides = ConvStem(), image_shape[1:]
        before = image_shape[0]
        for after, stride in ((32, 1), (64, 2), (128, 2)):
            self.stem.extend([nn.Conv2d(before, after, kernel, stride), nn.ReLU(inplace=True)])
            before, sides = after, tuple(conv_size(side, kernel, stride) for side in sides)
        self.head = ClassGroups(before * math.prod(sides), num_classes, squashed)
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the feature maps as a grid of capsules [B, H', W', 1, 128]."""
        self.check_images(images)
        return maps_as_capsules(self.stem(images))


@register_model("cnn_matched")
def cnn_matched(
    image_shape: ImageShape,
    num_classes: int,
    *,
    kernel: int = 5,
    squashed: bool = False,
    decoder: str | None = "deconv",
) -> MatchedCNN:
    """The control of `capsnet_small`: its convolutions and decoder, as many weights, no capsules and no routing.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        kernel: Size of all kernels.
        squashed: Whether the activation of a class is the length of its squashed group.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    made = make_decoder(decoder, num_classes, DIM, image_shape)
    return MatchedCNN(image_shape, num_classes, kernel=kernel, squashed=squashed, decoder=made)
