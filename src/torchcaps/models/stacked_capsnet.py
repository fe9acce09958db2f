"""Dense capsule layers on top of each other: what happens to routing with depth (Mitterreiter et al. 2023)."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.models._base import ImageShape, RoutedModel, check_depth
from torchcaps.models._create import register_model
from torchcaps.models.capsnet import CapsNet, primary_capsules
from torchcaps.nn import CapsLinear, RoutingSpec, make_router
from torchcaps.types import Capsules

# Capsules of each layer between primary capsules and classes, and their dimensions.
CAPS, DIM = 16, 8


class StackedCapsNet(RoutedModel):
    """`capsnet_small` with further layers of 16 capsules, each routed, below the classes.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        depth: Number of further layers.
        routing: Router, its name, or a mapping with its name and options. Each layer has its own.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 16] and activations [B, J].

    Example:
        >>> import torch
        >>> StackedCapsNet((1, 28, 28), 10, depth=2)(torch.rand(2, 1, 28, 28)).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self, image_shape: ImageShape, num_classes: int, *, depth: int = 1, routing: RoutingSpec = "dynamic"
    ) -> None:
        check_depth("depth", depth)
        super().__init__(image_shape, num_classes)
        convs = ((32, 5, 1), (64, 5, 2))
        below = CapsNet(image_shape, num_classes, stem=convs, primary=(16, 5, 2), routing=routing)
        self.default_loss = below.default_loss
        self.stem, self.primary, children = below.stem, below.primary, below.head.in_caps
        self.middle = nn.Sequential()
        for _ in range(depth):
            self.middle.append(self._layer(children, CAPS, DIM, routing))
            children = CAPS
        self.head = self._layer(CAPS, num_classes, 16, routing)

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules below the classes, a set [B, 16, 8]."""
        self.check_images(images)
        return self.middle(primary_capsules(self.primary, self.stem(images)))

    @staticmethod
    def _layer(children: int | None, parents: int, dim: int, routing: RoutingSpec) -> CapsLinear:
        router = make_router(routing)
        return CapsLinear(children, parents, in_dim=DIM, out_dim=dim, routing=router, bias=router.takes_bias)


@register_model("stacked_capsnet")
def stacked_capsnet(
    image_shape: ImageShape, num_classes: int, *, depth: int = 1, routing: RoutingSpec = "dynamic"
) -> StackedCapsNet:
    """`capsnet_small` without a decoder and with `depth` further layers of 16 routed capsules of 8.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        depth: Number of further layers.
        routing: Router, its name, or a mapping with its name and options.

    Returns:
        The model.
    """
    return StackedCapsNet(image_shape, num_classes, depth=depth, routing=routing)
