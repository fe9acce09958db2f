"""A capsule head on a backbone, and the same backbone with a linear head: its control."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.errors import ConfigError
from torchcaps.models._backbones import ConvBackbone, feature_shape, make_backbone
from torchcaps.models._base import Grid, ImageModel, ImageShape, RoutedModel
from torchcaps.models._create import register_model
from torchcaps.models._layers import make_decoder
from torchcaps.nn import CapsHead, RoutingSpec
from torchcaps.nn.head import Pool
from torchcaps.types import Capsules


class BackboneModel(ImageModel):
    """Base of models with a backbone as `stem`, which may have a learning rate of its own and be frozen at first.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        backbone: Module from images to features.
        freeze: Number of epochs in which the backbone is not trained.
        backbone_lr: Learning rate of the backbone; by default that of the rest.

    Raises:
        ConfigError: If `freeze` or `backbone_lr` is out of range.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        backbone: nn.Module,
        *,
        freeze: int = 0,
        backbone_lr: float | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes)
        if not isinstance(freeze, int) or isinstance(freeze, bool) or freeze < 0:
            raise ConfigError(f"freeze: expected a number of epochs, got {freeze!r}")
        if backbone_lr is not None and not backbone_lr > 0:
            raise ConfigError(f"backbone_lr: expected a number above 0, got {backbone_lr!r}")
        self.stem = backbone
        self.feature_shape = feature_shape(backbone, self.image_shape)
        self.freeze = freeze
        self.stem_lr = backbone_lr
        self.any_size = isinstance(backbone, ConvBackbone)

    @property
    def num_features(self) -> int:
        """Number of channels of the backbone's features."""
        return self.feature_shape[-1] if len(self.feature_shape) == 2 else self.feature_shape[0]


class BackboneCapsNet(RoutedModel, BackboneModel):
    """A capsule head on a backbone.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        backbone: Module from images to features.
        head: From features to class capsules.
        decoder: Module from masked class capsules to images.
        freeze: Number of epochs in which the backbone is not trained.
        backbone_lr: Learning rate of the backbone; by default that of the head.

    Shape:
        images [B, C, H, W]; returns poses [B, J, class_dim] and activations [B, J].

    Example:
        >>> import torch
        >>> model = BackboneCapsNet((3, 16, 16), 5, nn.Conv2d(3, 8, 3), CapsHead(8, 5))
        >>> model(torch.rand(2, 3, 16, 16)).poses.shape
        torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        backbone: nn.Module,
        head: CapsHead,
        *,
        decoder: nn.Module | None = None,
        freeze: int = 0,
        backbone_lr: float | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes, backbone, freeze=freeze, backbone_lr=backbone_lr)
        self.primary, self.head = head.primary, head.classes
        if self.class_router.reads_activations:
            self.default_loss = "spread"
        self.decoder = decoder

    def features(self, images: Tensor) -> Capsules:
        """Return the primary capsules, [B, caps, dim], or without pooling a grid [B, H, W, caps, dim]."""
        self.check_images(images)
        return self.primary(self.stem(images))

    def grid(self) -> Grid | None:
        """Return the centres of the positions of the feature map, or None if capsules are pooled over them."""
        if self.primary.pool != "none" or len(self.feature_shape) != 3:
            return None
        return Grid.even(*self.feature_shape[1:])


@register_model("backbone_capsnet")
def backbone_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    backbone: str | nn.Module = "resnet8",
    weights: str | None = None,
    freeze: int = 0,
    backbone_lr: float | None = None,
    caps: int = 32,
    dim: int = 8,
    pool: Pool = "attention",
    dropout: float = 0.1,
    routing: RoutingSpec = "dynamic",
    decoder: str | None = None,
) -> BackboneCapsNet:
    """A capsule head on a backbone: a small ResNet by name, `timm:NAME`, or any module from images to features.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        backbone: Name of the backbone, or a module from images to features.
        weights: File with weights of the backbone; None for random ones.
        freeze: Number of epochs in which the backbone is not trained.
        backbone_lr: Learning rate of the backbone; by default that of the head.
        caps: Types of primary capsules.
        dim: Pose size of the primary capsules.
        pool: `attention` or `none`, see `nn.CapsHead`.
        dropout: Probability that a feature is dropped in training.
        routing: Router, its name, or a mapping with its name and options.
        decoder: Name of the decoder; None for none.

    Returns:
        The model.
    """
    stem = make_backbone(backbone, image_shape, weights)
    shape = feature_shape(stem, image_shape)
    features = shape[-1] if len(shape) == 2 else shape[0]
    head = CapsHead(features, num_classes, caps=caps, dim=dim, pool=pool, dropout=dropout, routing=routing)
    made = make_decoder(decoder, num_classes, 16, image_shape)
    return BackboneCapsNet(image_shape, num_classes, stem, head, decoder=made, freeze=freeze, backbone_lr=backbone_lr)


class LinearHead(nn.Module):
    """Class scores from features: the mean over all positions, dropout, and one linear layer.

    Args:
        in_features: Number of channels of the features.
        num_classes: Number of classes.
        dropout: Probability that a feature is dropped in training.

    Shape:
        a set of capsules, poses [B, N, C]; returns poses [B, J, 1] and activations [B, J].
    """

    def __init__(self, in_features: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(in_features, num_classes)

    def forward(self, features: Capsules) -> Capsules:
        scores = self.linear(self.dropout(features.poses.mean(dim=1)))  # [B, J]
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))


class BackboneLinear(BackboneModel):
    """The control of `BackboneCapsNet`: the same backbone, the mean of its features, and a linear layer.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        backbone: Module from images to features.
        dropout: Probability that a feature is dropped in training.
        freeze: Number of epochs in which the backbone is not trained.
        backbone_lr: Learning rate of the backbone; by default that of the head.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 1] and activations [B, J].

    Example:
        >>> import torch
        >>> BackboneLinear((3, 16, 16), 5, nn.Conv2d(3, 8, 3))(torch.rand(2, 3, 16, 16)).poses.shape
        torch.Size([2, 5, 1])
    """

    default_loss = "cross_entropy"

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        backbone: nn.Module,
        *,
        dropout: float = 0.1,
        freeze: int = 0,
        backbone_lr: float | None = None,
    ) -> None:
        super().__init__(image_shape, num_classes, backbone, freeze=freeze, backbone_lr=backbone_lr)
        self.head = LinearHead(self.num_features, num_classes, dropout)

    def features(self, images: Tensor) -> Capsules:
        """Return the features as a set of capsules, one per position, [B, N, C]."""
        self.check_images(images)
        maps = self.stem(images)
        if maps.dim() == 2:
            maps = maps.unsqueeze(1)
        poses = maps.flatten(2).transpose(1, 2) if maps.dim() == 4 else maps  # [B, N, C]
        return Capsules(poses, poses.new_ones(poses.shape[:2]))


@register_model("backbone_linear")
def backbone_linear(
    image_shape: ImageShape,
    num_classes: int,
    *,
    backbone: str | nn.Module = "resnet8",
    weights: str | None = None,
    freeze: int = 0,
    backbone_lr: float | None = None,
    dropout: float = 0.1,
) -> BackboneLinear:
    """The control of `backbone_capsnet`: the same backbone with average pooling and a linear head.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        backbone: Name of the backbone, or a module from images to features.
        weights: File with weights of the backbone; None for random ones.
        freeze: Number of epochs in which the backbone is not trained.
        backbone_lr: Learning rate of the backbone; by default that of the head.
        dropout: Probability that a feature is dropped in training.

    Returns:
        The model.
    """
    stem = make_backbone(backbone, image_shape, weights)
    return BackboneLinear(image_shape, num_classes, stem, dropout=dropout, freeze=freeze, backbone_lr=backbone_lr)
