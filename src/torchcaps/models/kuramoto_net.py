"""A synchronisation network: layers of Kuramoto oscillators that find a common phase for what belongs together.

After the artificial Kuramoto oscillatory neurons of Miyato et al. 2025. It is smaller, its oscillators start in a phase
that each channel learns, not at random, and they have two dimensions, so that the state of each is one phase.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.nn import KuramotoConv2d, KuramotoReadout
from torchcaps.types import Capsules

GRID = 4


class KuramotoNet(ImageModel):
    """Layers of oscillators, each at half the resolution of the one before, and one score per class.

    A convolution makes the stimulus of a layer, its oscillators synchronise, and the lengths of mixtures of them go on;
    the scores are linear in their averages over 4x4 parts of the image, so that images may have any size. As in a CNN
    a class is a capsule of one dimension: poses [B, J, 1] are the scores, activations [B, J] their softmax.
    """

    loss = "cross_entropy"
    any_size = True

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        widths: tuple[int, ...] = (8, 16, 32),
        dim: int = 2,
        kernel_size: int = 3,
        iters: int = 3,
        step: float = 1.0,
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stimuli, self.oscillators, self.readouts = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for place, (before, width) in enumerate(pairwise((image_shape[0], *widths))):
            stride = 1 if place == 0 else 2
            conv = nn.Conv2d(before, width * dim, 3, stride, padding=1, bias=False)
            self.stimuli.append(nn.Sequential(conv, nn.BatchNorm2d(width * dim)))
            self.oscillators.append(KuramotoConv2d(width, dim, kernel_size, iters=iters, step=step))
            self.readouts.append(KuramotoReadout(width, dim, width))
        # Lengths are all above zero; without their mean taken away, classes would be learned much more slowly.
        self.scores = nn.Sequential(
            nn.BatchNorm2d(widths[-1]),
            nn.AdaptiveAvgPool2d(GRID),
            nn.Flatten(),
            nn.Linear(widths[-1] * GRID * GRID, num_classes),
        )

    def forward(self, images: Tensor) -> Capsules:
        self.check_images(images)
        features = images
        for stimulus, oscillators, readout in zip(self.stimuli, self.oscillators, self.readouts, strict=True):
            features = readout(oscillators(stimulus(features)))  # [B, width, H', W']
        scores = self.scores(features)  # [B, J]
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))

    def phases(self, images: Tensor) -> Tensor:
        """The phases of the first layer's oscillators at the start and after each iteration, [R + 1, B, C, H, W].

        With more than two dimensions it is the angle in the plane of the first two.
        """
        self.check_images(images)
        layer = self.oscillators[0]
        states = torch.stack(layer.states(self.stimuli[0](images)))  # pyright: ignore[reportCallIssue]
        states = states.unflatten(2, (layer.channels, layer.dim))  # pyright: ignore[reportArgumentType, reportCallIssue]
        return torch.atan2(states[:, :, :, 1], states[:, :, :, 0])  # [R + 1, B, C, H, W]


@register_model("kuramoto_net")
def kuramoto_net(
    image_shape: ImageShape, num_classes: int, *, dim: int = 2, kernel_size: int = 3, iters: int = 3, step: float = 1.0
) -> KuramotoNet:
    """A synchronisation network: three layers of 8, 16 and 32 channels of Kuramoto oscillators; images of any size."""
    return KuramotoNet(image_shape, num_classes, dim=dim, kernel_size=kernel_size, iters=iters, step=step)
