"""Classifiers of token sequences that differ only in how they pool: mean, attention or class capsules.

An image is read as a sequence: each position is a token of C channels, and a position whose channels are all 0 is
padding. So a sentence [100, 1, N] of `trec` and `sst2` is a sequence of N words, and any other image of H x W pixels.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from torchcaps.errors import ConfigError
from torchcaps.models._base import ImageModel, ImageShape, RoutedModel
from torchcaps.models._create import register_model
from torchcaps.nn import FeatureCaps, RoutingSpec, make_router
from torchcaps.nn.head import SharedCaps
from torchcaps.types import Capsules

ScorePool = Literal["mean", "attention"]


class TokenStem(nn.Module):
    """Tokens with their neighbours: normalised, and two layers that see three tokens each; padding stays 0.

    Args:
        channels: Number of channels of a token.
        width: Number of features.
        dropout: Probability that a feature is dropped in training.

    Shape:
        images [B, C, H, W]; returns maps [B, width, 1, H * W].
    """

    def __init__(self, channels: int, width: int, dropout: float) -> None:
        super().__init__()
        # A single channel would become 0.
        self.norm = nn.LayerNorm(channels) if channels > 1 else nn.Identity()
        self.first = nn.Conv1d(channels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, padding=1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, images: Tensor) -> Tensor:
        present = present_tokens(images).unsqueeze(1)  # [B, 1, N]
        tokens = self.norm(images.flatten(2).transpose(1, 2)).transpose(1, 2) * present  # [B, C, N]
        hidden = self.dropout(self.first(self.dropout(tokens)).relu()) * present  # [B, width, N]
        return ((hidden + self.second(hidden).relu()) * present).unsqueeze(2)


def present_tokens(images: Tensor) -> Tensor:
    """Return which positions of images [B, C, H, W] are tokens, bool [B, H * W]; an empty image has one, the first."""
    present = (images.flatten(2) != 0).any(dim=1)  # [B, N]
    first = torch.arange(present.shape[1], device=images.device) == 0  # [N]
    return present | (first & ~present.any(dim=1, keepdim=True))


class PooledScores(nn.Module):
    """Class scores from tokens: pooled by their mean or by attention, then one hidden layer.

    Args:
        width: Number of features of a token.
        num_classes: Number of classes.
        hidden: Size of the hidden layer.
        pool: `mean`, or `attention` with one weight per token, a softmax of a learned map.
        dropout: Probability that a feature is dropped in training.

    Shape:
        a set of capsules, poses [B, N, width], activations 0 where a token is padding; returns poses [B, J, 1] and
        activations [B, J].
    """

    def __init__(self, width: int, num_classes: int, hidden: int, pool: ScorePool, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        # A bias would move all logits of the softmax alike.
        self.attention = nn.Linear(width, 1, bias=False) if pool == "attention" else None
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, num_classes)
        )

    def forward(self, tokens: Capsules) -> Capsules:
        features, absent = self.norm(tokens.poses), tokens.activations == 0  # [B, N, width], [B, N]
        logits = features.new_zeros(absent.shape) if self.attention is None else self.attention(features).squeeze(-1)
        weights = logits.masked_fill(absent, -torch.inf).softmax(dim=1)  # [B, N]
        scores = self.layers(torch.einsum("bn,bnc->bc", weights, features))  # [B, J]
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))


class TokenScores(ImageModel):
    """The controls of `TokenCapsNet`: the same tokens, pooled by their mean or by attention, and a hidden layer.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        pool: `mean` or `attention`.
        hidden: Size of the hidden layer.
        width: Number of features of a token.
        dropout: Probability that a feature is dropped in training.

    Shape:
        images [B, C, H, W]; returns poses [B, J, 1] and activations [B, J].

    Raises:
        ConfigError: If `pool` is unknown.

    Example:
        >>> TokenScores((100, 1, 40), 6, pool="mean", hidden=80)(torch.rand(2, 100, 1, 40)).poses.shape
        torch.Size([2, 6, 1])
    """

    default_loss = "cross_entropy"
    any_size = True
    reads_tokens = True

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        pool: ScorePool,
        hidden: int,
        width: int = 32,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(image_shape, num_classes)
        if pool not in ("mean", "attention"):
            raise ConfigError(f"pool: expected mean or attention, got '{pool}'")
        self.stem = TokenStem(image_shape[0], width, dropout)
        self.head = PooledScores(width, num_classes, hidden, pool, dropout)

    def features(self, images: Tensor) -> Capsules:
        """Return one capsule per token, [B, N, width]; padding has activation 0."""
        self.check_images(images)
        return Capsules(self.stem(images).squeeze(2).transpose(1, 2), present_tokens(images).to(images.dtype))


class TokenCaps(SharedCaps):
    """A layer of class capsules that takes children of activation 0 for padding, whatever the routing reads."""

    def _present(self, children: Capsules, mask: Tensor | None) -> tuple[Capsules, Tensor | None]:
        return super()._present(children, children.activations > 0 if mask is None else mask)


class TokenCapsNet(RoutedModel):
    """Class capsules from tokens: each token is one child, and routing to the classes takes the place of pooling.

    Args:
        image_shape: Channels, height and width of the images.
        num_classes: Number of classes.
        routing: A router, its name, or a table with its name and options.
        width: Number of features of a token.
        dim: Pose size of a token.
        class_dim: Pose size of a class.
        dropout: Probability that a feature of a token is dropped in training.

    Shape:
        images [B, C, H, W]; returns poses [B, J, class_dim] and activations [B, J].

    Example:
        >>> TokenCapsNet((100, 1, 40), 6)(torch.rand(2, 100, 1, 40)).poses.shape
        torch.Size([2, 6, 16])
    """

    any_size = True
    reads_tokens = True

    def __init__(
        self,
        image_shape: ImageShape,
        num_classes: int,
        *,
        routing: RoutingSpec = "heinsen",
        width: int = 32,
        dim: int = 32,
        class_dim: int = 16,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(image_shape, num_classes)
        router = make_router(routing)
        self.stem = TokenStem(image_shape[0], width, dropout)
        self.primary = FeatureCaps(width, 1, dim, pool="none", activations=router.reads_activations)
        self.head = TokenCaps(1, num_classes, dim, class_dim, routing=router, bias=router.takes_bias)

    def features(self, images: Tensor) -> Capsules:
        """Return the capsules of the tokens, [B, N, dim]; padding has pose and activation 0."""
        self.check_images(images)
        return self.primary(self.stem(images).squeeze(2).transpose(1, 2), present_tokens(images))


def _size(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def _make_scores(image_shape: ImageShape, num_classes: int, pool: ScorePool, width: int, dropout: float) -> TokenScores:
    """Return a control whose hidden layer gives it as many parameters as `token_capsnet` has by default."""
    with torch.device("meta"):
        capsules = TokenCapsNet(image_shape, num_classes, width=width)
        one, two = (_size(PooledScores(width, num_classes, hidden, pool, dropout)) for hidden in (1, 2))
    hidden = max(1, 1 + round((_size(capsules.primary, capsules.head) - one) / (two - one)))
    return TokenScores(image_shape, num_classes, pool=pool, hidden=hidden, width=width, dropout=dropout)


@register_model("token_capsnet")
def token_capsnet(
    image_shape: ImageShape,
    num_classes: int,
    *,
    width: int = 32,
    dim: int = 32,
    dropout: float = 0.2,
    routing: RoutingSpec = "heinsen",
) -> TokenCapsNet:
    """Class capsules from the tokens of a sentence: one capsule per word, routed to the classes.

    Args:
        image_shape: Shape of one input.
        num_classes: Number of classes.
        width: Width of the network.
        dim: Pose size.
        dropout: Probability that a hidden unit is dropped in training.
        routing: Router, its name, or a mapping with its name and options.

    Returns:
        The model.
    """
    return TokenCapsNet(image_shape, num_classes, routing=routing, width=width, dim=dim, dropout=dropout)


@register_model("token_mean")
def token_mean(image_shape: ImageShape, num_classes: int, *, width: int = 32, dropout: float = 0.2) -> TokenScores:
    """The control of `token_capsnet`: the mean of the tokens and a hidden layer, at equal parameters.

    Args:
        image_shape: Shape of one input.
        num_classes: Number of classes.
        width: Width of the network.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    return _make_scores(image_shape, num_classes, "mean", width, dropout)


@register_model("token_attention")
def token_attention(image_shape: ImageShape, num_classes: int, *, width: int = 32, dropout: float = 0.2) -> TokenScores:
    """The control of `token_capsnet`: attention pooling and a hidden layer, at equal parameters.

    Args:
        image_shape: Shape of one input.
        num_classes: Number of classes.
        width: Width of the network.
        dropout: Probability that a hidden unit is dropped in training.

    Returns:
        The model.
    """
    return _make_scores(image_shape, num_classes, "attention", width, dropout)
