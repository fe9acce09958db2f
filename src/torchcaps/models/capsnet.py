"""The capsule network of Sabour, Frosst and Hinton 2017, 'Dynamic routing between capsules'."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.models._base import Grid, ImageShape, RoutedModel, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import ConvStem, make_decoder
from torchcaps.nn import CapsLinear, PrimaryCaps2d, PrimaryMatrixCaps2d, RoutingSpec, make_router
from torchcaps.ops import receptive_centres
from torchcaps.types import Capsules

Conv = tuple[int, int, int]


class CapsNet(RoutedModel):
    """Capsule network of Sabour et al. 2017: convolutions, primary capsules, routing to class capsules.

    The number of primary capsules follows from `image_shape`. If the router reads the activations of the children, the
    primary capsules compute activations separately from poses, as matrix capsules do, their poses are normalised to a
    root mean square of 1, and the default loss is the spread loss. The length of a new primary capsule is close to
    zero, which such a router would read as "not present".

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        stem: Convolutions before the primary capsules, each as (channels, kernel size, stride).
        primary: Primary capsules as (capsule types, kernel size, stride).
        class_dim: Pose size of the class capsules.
        shared: Whether all primary capsules share one matrix per class.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Module from masked class capsules to images.

    Shape:
        images [B, C, H, W]; returns poses [B, J, class_dim] and activations [B, J].

    Raises:
        ShapeError: If the convolutions do not fit into the image.

    Example:
        >>> import torch
        >>> model = CapsNet((1, 20, 20), 3, stem=((16, 5, 1),), primary=(4, 5, 2))
        >>> model(torch.rand(2, 1, 20, 20)).poses.shape
        torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        stem: tuple[Conv, ...],
        primary: Conv,
        class_dim: int = 16,
        shared: bool = False,
        routing: RoutingSpec = "dynamic",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.convs = [(kernel, stride) for _, kernel, stride in (*stem, primary)]
        check_min_size(image_shape, _input_size(self.convs))
        channels = [image_shape[0], *(out for out, _, _ in stem)]
        self.stem = ConvStem()
        for (before, after), (_, kernel, stride) in zip(pairwise(channels), stem, strict=True):
            self.stem.extend([nn.Conv2d(before, after, kernel, stride), nn.ReLU(inplace=True)])
        types, kernel, stride = primary
        router = make_router(routing)
        kind: type[PrimaryCaps2d | PrimaryMatrixCaps2d] = PrimaryCaps2d
        if router.reads_activations:
            kind, self.default_loss = PrimaryMatrixCaps2d, "spread"
        self.primary = kind(channels[-1], types, dim=8, kernel_size=kernel, stride=stride)
        self.head = CapsLinear(
            None if shared else math.prod(map(len, self.grid())) * types,
            num_classes,
            in_dim=8,
            out_dim=class_dim,
            routing=router,
            bias=router.takes_bias,
        )
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the primary capsules, a grid [B, H, W, I, 8]."""
        self.check_images(images)
        return primary_capsules(self.primary, self.stem(images))

    def grid(self) -> Grid:
        """Return the centres of the receptive fields of the primary capsules."""
        return Grid(*(tuple(receptive_centres(side, self.convs)) for side in self.image_shape[1:]))


def primary_capsules(primary: PrimaryCaps2d | PrimaryMatrixCaps2d, maps: Tensor) -> Capsules:
    """Return the primary capsules of feature maps; those with separate activations get normalised poses.

    Args:
        primary: The layer of primary capsules.
        maps: Feature maps.

    Shape:
        maps [B, C, H, W]; returns a grid [B, H', W', I, 8].

    Returns:
        The capsules.
    """
    poses, activations = primary(maps)
    if isinstance(primary, PrimaryMatrixCaps2d):
        poses = math.sqrt(poses.shape[-1]) * F.normalize(poses, dim=-1)  # [B, H, W, I, 8]
    return Capsules(poses, activations)


def _input_size(convs: list[tuple[int, int]]) -> int:
    """Return the smallest image side for which every convolution fits."""
    size = 1
    for kernel, stride in reversed(convs):
        size = (size - 1) * stride + kernel
    return size


@register_model("capsnet")
def capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    routing: RoutingSpec = "dynamic",
    decoder: str | None = "mlp",
) -> CapsNet:
    """The paper's MNIST network: conv 9x9 with 256 channels, 32 primary types of 8, class capsules of 16.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    return CapsNet(
        image_shape,
        num_classes,
        stem=((256, 9, 1),),
        primary=(32, 9, 2),
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )


@register_model("capsnet_small")
def capsnet_small(
    image_shape: ImageShape,
    num_classes: int,
    *,
    kernel: int = 5,
    shared: bool = False,
    routing: RoutingSpec = "dynamic",
    decoder: str | None = "deconv",
) -> CapsNet:
    """A capsule network for two cores: two small convolutions, 16 primary types of 8, class capsules of 16.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        kernel: Size of all kernels.
        shared: Whether all primary capsules share one matrix per class.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    return CapsNet(
        image_shape,
        num_classes,
        stem=((32, kernel, 1), (64, kernel, 2)),
        primary=(16, kernel, 2),
        shared=shared,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, 16, image_shape),
    )
