"""The capsule network of Su Jianlin's essays (2018): routing as clustering, with weights that all children share.

His network for digits: four convolutions, the 128 channels of every position as one child, class capsules of 16. Since
no weight belongs to a position, a trained network takes images of any size: his test is to train on single digits and
to ask about two side by side. `cnn_avgpool` is the control: the same convolutions with averaging in place of routing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torchcaps.models._base import ImageModel, ImageShape, register_model
from torchcaps.models.cnn import STEM_LEAST, conv_stem
from torchcaps.nn import CapsLinear, Router, make_router
from torchcaps.types import Capsules, Trace


class KMeansCapsNet(ImageModel):
    """Convolutions, one child of 128 numbers at every position, and one capsule of 16 per class.

    Children are what the convolutions give, neither squashed nor more or less active than each other.
    """

    any_size = True
    least = STEM_LEAST

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        routing: Router | str | Mapping[str, Any] = "kmeans",
    ) -> None:
        super().__init__(image_shape, num_classes)
        self.stem = conv_stem(image_shape)
        router = make_router(routing)
        self.head = CapsLinear(None, num_classes, in_dim=128, out_dim=16, routing=router, bias=router.takes_bias)

    def features(self, images: Tensor) -> Capsules:
        """The children, a grid [B, H, W, 1, 128] whose size follows from that of the images."""
        self.check_images(images)
        poses = self.stem(images).permute(0, 2, 3, 1).unsqueeze(3)  # [B, H, W, 1, 128]
        return Capsules(poses, poses.new_ones(poses.shape[:4]))

    def forward(self, images: Tensor) -> Capsules:
        return self.head(self.features(images))

    def trace(self, images: Tensor) -> Trace:
        return self.head.trace(self.features(images))


@register_model("kmeans_capsnet")
def kmeans_capsnet(
    image_shape: ImageShape, num_classes: int, *, routing: Router | str | Mapping[str, Any] = "kmeans"
) -> KMeansCapsNet:
    """Su's network: four convolutions, k-means routing with shared weights; a trained one takes images of any size."""
    return KMeansCapsNet(image_shape, num_classes, routing=routing)
