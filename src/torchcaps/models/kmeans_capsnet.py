"""The capsule network of Su Jianlin's essays (2018): routing as clustering, with weights that all children share.

The network for digits has four convolutions, one child of 128 channels at every position, and class capsules of 16. No
weight belongs to a position, so a trained network accepts images of any size: Su's test trains on single digits and
evaluates on two digits side by side. `cnn_avgpool` is the control, with averaging in place of routing.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.models._base import Grid, ImageShape, RoutedModel
from torchcaps.models._create import register_model
from torchcaps.models._layers import maps_as_capsules
from torchcaps.models.cnn import STEM_CONVS, STEM_MIN_SIZE, conv_stem
from torchcaps.nn import CapsLinear, RoutingSpec, make_router
from torchcaps.ops import receptive_centres
from torchcaps.types import Capsules


class KMeansCapsNet(RoutedModel):
    """Capsule network of Su 2018: convolutions, one child of 128 numbers per position, class capsules of 16.

    The children are the outputs of the convolutions: they are not squashed, and all have activation 1.

    Args:
        image_shape: Channels, height and width of the training images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.

    Shape:
        images [B, C, H, W] of any height and width from 14; returns poses [B, J, 16] and activations [B, J].

    Raises:
        ShapeError: If images are smaller than 14x14.

    Example:
        >>> import torch
        >>> KMeansCapsNet((1, 28, 28), 10)(torch.rand(2, 1, 28, 56)).poses.shape
        torch.Size([2, 10, 16])
    """

    any_size = True
    min_size = STEM_MIN_SIZE

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        routing: RoutingSpec = "kmeans",
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem = conv_stem(image_shape)
        router = make_router(routing)
        self.head = CapsLinear(None, num_classes, in_dim=128, out_dim=16, routing=router, bias=router.takes_bias)

    def features(self, images: Tensor) -> Capsules:
        """Return the children, a grid [B, H, W, 1, 128] whose size follows from that of the images."""
        self.check_images(images)
        return maps_as_capsules(self.stem(images))

    def grid(self) -> Grid:
        """Return the centres of the receptive fields of the children."""
        return Grid(*(tuple(receptive_centres(side, STEM_CONVS)) for side in self.image_shape[1:]))


@register_model("kmeans_capsnet")
def kmeans_capsnet(image_shape: ImageShape, num_classes: int, *, routing: RoutingSpec = "kmeans") -> KMeansCapsNet:
    """Su's network: four convolutions and k-means routing with shared weights; accepts images of any size.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.

    Returns:
        The model.
    """
    return KMeansCapsNet(image_shape, num_classes, routing=routing)
