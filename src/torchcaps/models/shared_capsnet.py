"""Capsule networks for signals and volumes, and the same convolutions without capsules."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.models._base import ImageShape, RoutedModel, check_min_size
from torchcaps.models._create import register_model
from torchcaps.models._layers import make_decoder
from torchcaps.models.cnn import CNN
from torchcaps.nn import ClassCaps, RoutingSpec, make_router
from torchcaps.nn.primary import PRIMARY_CAPS
from torchcaps.nn.primary_matrix import PRIMARY_MATRIX_CAPS, PrimaryMatrixCaps
from torchcaps.nn.ranks import CONVS
from torchcaps.ops import receptive_centres
from torchcaps.types import Capsules

Conv = tuple[int, int, int]
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
DIM, CLASS_DIM = 8, 16
# Convolutions and primary capsules of the network for volumes, each as (channels or types, kernel size, stride).
VOLUME_STEM: tuple[Conv, ...] = ((16, 5, 2), (32, 3, 1))
VOLUME_PRIMARY: Conv = (8, 3, 2)
SIGNAL_PRIMARY: Conv = (16, 5, 2)
# Scale of the squashed poses, times classes / (positions * sqrt(types)), and of the coordinates beside their votes.
GAIN, COORDINATES = 7.0, 0.15
# Signals of more samples than this are read with a larger stride.
LONG = 128


class SharedCapsNet(RoutedModel):
    """Capsule network whose positions share the matrices of the votes, so that its size does not depend on the input's.

    Batch-normalised convolutions, primary capsules, and class capsules (`ClassCaps`) with coordinate addition: the
    place of a capsule along each axis, from the centre of the input and scaled to the size of a vote, is added to the
    first entries of its votes. The poses of the primary capsules have a gain, so that class capsules begin with a
    medium length for inputs of any size. If the router reads the activations of the children, the primary capsules
    compute them apart from the poses, as in `CapsNet`.

    Args:
        image_shape: Channels and sides: (channels, length) of signals, (channels, depth, height, width) of volumes.
        num_classes: Number of classes.
        stem: Convolutions before the primary capsules, each as (channels, kernel size, stride).
        primary: Primary capsules as (capsule types, kernel size, stride).
        routing: Router, its name, or a mapping with its name and options.
        decoder: Module from masked class capsules to signals or volumes.

    Shape:
        images [B, C, T], [B, C, H, W] or [B, C, D, H, W]; returns poses [B, J, 16] and activations [B, J].

    Raises:
        ShapeError: If the convolutions do not fit into the input.

    Example:
        >>> import torch
        >>> model = SharedCapsNet((3, 40), 4, stem=((16, 5, 1),), primary=(4, 5, 2))
        >>> model(torch.randn(2, 3, 40)).poses.shape
        torch.Size([2, 4, 16])
    """

    ranks = (1, 2, 3)

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        stem: tuple[Conv, ...],
        primary: Conv,
        routing: RoutingSpec = "dynamic",
        decoder: nn.Module | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        rank = len(image_shape) - 1
        convs = [(kernel, stride) for _, kernel, stride in (*stem, primary)]
        check_min_size(image_shape, input_size(convs))
        self.stem = nn.Sequential(*conv_layers(image_shape, stem))
        types, kernel, stride = primary
        router = make_router(routing)
        kind = PRIMARY_CAPS[rank]
        if router.reads_activations:
            kind, self.default_loss = PRIMARY_MATRIX_CAPS[rank], "spread"
        self.primary = kind(stem[-1][0], types, dim=DIM, kernel_size=kernel, stride=stride)
        centres = [receptive_centres(side, convs) for side in image_shape[1:]]
        # A sum over all positions, as of dynamic routing, has a length of about 1 at the start whatever their number.
        # Means, and routings that count the children themselves, need no gain.
        counts = router.reads_activations or router.contract.reads_poses
        self.gain = 1.0 if counts else GAIN * num_classes / (math.prod(map(len, centres)) * math.sqrt(types))
        # Centred and as small as the other entries of a vote: class capsules would otherwise be sums of places.
        scale = 1.0 if counts else COORDINATES * self.gain
        centres = [[scale * (at - 0.5) for at in each] for each in centres]
        self.head = ClassCaps(types, num_classes, dims=(DIM, CLASS_DIM), pose="vector", routing=router, centres=centres)
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the primary capsules, a grid [B, T, I, 8] of signals or [B, D, H, W, I, 8] of volumes."""
        self.check_images(images)
        poses, activations = self.primary(self.stem(images))
        if isinstance(self.primary, PrimaryMatrixCaps):
            poses = math.sqrt(DIM) * F.normalize(poses, dim=-1)  # [B, T, I, 8]
        return Capsules(self.gain * poses, activations)


def conv_layers(image_shape: ImageShape, convs: tuple[Conv, ...]) -> list[nn.Module]:
    """Return convolutions (channels, kernel size, stride), each with batch normalisation and ReLU."""
    rank = len(image_shape) - 1
    layers: list[nn.Module] = []
    channels = [image_shape[0], *(out for out, _, _ in convs)]
    for (before, after), (_, kernel, stride) in zip(pairwise(channels), convs, strict=True):
        layers += [CONVS[rank](before, after, kernel, stride, bias=False), NORMS[rank](after), nn.ReLU()]
    return layers


def input_size(convs: list[tuple[int, int]]) -> int:
    """Return the smallest side of an input for which every convolution (kernel size, stride) fits."""
    size = 1
    for kernel, stride in reversed(convs):
        size = (size - 1) * stride + kernel
    return size


def signal_stem(length: int) -> tuple[Conv, ...]:
    """Return two convolutions for signals; the first one has a stride that keeps long signals to about 128 samples."""
    stride = max(1, length // LONG)
    return ((32, max(7, 2 * stride + 1), stride), (64, 5, 2))


@register_model("capsnet_1d", rank=1)
def capsnet_1d(
    image_shape: ImageShape, num_classes: int, *, routing: RoutingSpec = "dynamic", decoder: str | None = "deconv"
) -> SharedCapsNet:
    """A capsule network for signals: two convolutions, 16 primary types of 8, class capsules of 16.

    Args:
        image_shape: Channels and length of the signals.
        num_classes: Number of classes.
        routing: Router of the class capsules, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    return SharedCapsNet(
        image_shape,
        num_classes,
        stem=signal_stem(image_shape[1]),
        primary=SIGNAL_PRIMARY,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, CLASS_DIM, image_shape),
    )


@register_model("capsnet_3d", rank=3)
def capsnet_3d(
    image_shape: ImageShape, num_classes: int, *, routing: RoutingSpec = "dynamic", decoder: str | None = "deconv"
) -> SharedCapsNet:
    """A capsule network for volumes: two convolutions, 8 primary types of 8, class capsules of 16.

    Args:
        image_shape: Channels, depth, height and width of the volumes.
        num_classes: Number of classes.
        routing: Router of the class capsules, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    return SharedCapsNet(
        image_shape,
        num_classes,
        stem=VOLUME_STEM,
        primary=VOLUME_PRIMARY,
        routing=routing,
        decoder=make_decoder(decoder, num_classes, CLASS_DIM, image_shape),
    )


@register_model("cnn_1d", rank=1)
def cnn_1d(image_shape: ImageShape, num_classes: int, *, dropout: float = 0.25) -> CNN:
    """The control of capsnet_1d: its convolutions, the average over time, and a hidden layer of as many parameters.

    Args:
        image_shape: Channels and length of the signals.
        num_classes: Number of classes.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    types, kernel, stride = SIGNAL_PRIMARY
    convs, width = signal_stem(image_shape[1]), types * DIM
    check_min_size(image_shape, input_size([*((size, step) for _, size, step in convs), (kernel, stride)]))
    # The convolution of the primary capsules has no normalisation either.
    stem = [*conv_layers(image_shape, convs), nn.Conv1d(convs[-1][0], width, kernel, stride), nn.ReLU()]
    # As many parameters as the matrices of the votes of the capsules.
    hidden = max(1, round((types * DIM * CLASS_DIM - 1) * num_classes / (width + 1 + num_classes)))
    head = [
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, num_classes),
    ]
    return CNN(image_shape, num_classes, nn.Sequential(*stem), head)
