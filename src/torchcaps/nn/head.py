"""A capsule head for any backbone: feature maps, tokens or vectors in, class capsules out."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn._validation import check_positive
from torchcaps.nn.linear import CapsLinear
from torchcaps.nn.routers import RoutingSpec, make_router
from torchcaps.ops import squash, transforms_active
from torchcaps.types import Capsules, Trace

Pool = Literal["attention", "none"]


class FeatureCaps(nn.Module):
    """Primary capsules of feature maps, tokens or vectors.

    Features are normalised over their channels and projected to `caps` poses. With `pool="attention"` each type of
    capsule has one pose for the whole input: the mean over the positions, weighted by a softmax that the type learns.
    With `pool="none"` each position has one pose per type. A pose is squashed, and its length is the activation; with
    `activations` a sigmoid of its own is the activation, and poses have a root mean square of 1.

    Args:
        in_features: Number of channels of the features.
        caps: Number of types of capsules.
        dim: Pose size.
        pool: `attention` or `none`.
        dropout: Probability that a capsule is dropped in training: pose and activation are 0.
        activations: Compute activations apart from poses, for routers that read them.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        features: [B, C, H, W], [B, N, C] or [B, C]; mask: [B, N]; returns poses [B, caps, dim] with pooling, else
        [B, H, W, caps, dim], [B, N * caps, dim] or [B, caps, dim].

    Raises:
        ConfigError: If a size is not positive or an option is unknown or out of range.

    Example:
        >>> FeatureCaps(64, 32, 8)(torch.randn(2, 64, 7, 7)).poses.shape
        torch.Size([2, 32, 8])
    """

    def __init__(
        self,
        in_features: int,
        caps: int,
        dim: int,
        *,
        pool: Pool = "attention",
        dropout: float = 0.0,
        activations: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_features=in_features, caps=caps, dim=dim)
        if pool not in get_args(Pool):
            raise ConfigError(f"pool: expected one of {', '.join(get_args(Pool))}, got '{pool}'")
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout: expected a number from 0 to below 1, got {dropout}")
        self.caps = caps
        self.dim = dim
        self.pool: Pool = pool
        self.dropout = dropout
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.norm = nn.LayerNorm(in_features, **factory)
        self.poses = nn.Linear(in_features, caps * dim, **factory)
        self.attention = nn.Linear(in_features, caps, **factory) if pool == "attention" else None
        self.activations = nn.Linear(in_features, caps, **factory) if activations else None

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Capsules:
        """Compute the capsules.

        Args:
            features: Feature maps, tokens or vectors.
            mask: Which tokens are present; the others have pose and activation 0.

        Shape:
            features: [B, C, H, W], [B, N, C] or [B, C]; mask: bool [B, N]; returns poses [B, caps, dim], or without
            pooling [B, H, W, caps, dim] or [B, N * caps, dim].

        Returns:
            The capsules.

        Raises:
            ShapeError: If features or mask have another shape, or a sample has no token.
        """
        tokens = self.norm(self._tokens(features))  # [B, N, C]
        check_mask(mask, tokens)
        if self.attention is not None:
            weights = self.attention(tokens)  # [B, N, caps]
            if mask is not None:
                weights = weights.masked_fill(~mask.unsqueeze(-1), -torch.inf)
            # The mean of projections is the projection of the mean, which needs no poses of the positions.
            tokens = torch.einsum("bnk,bnc->bkc", weights.softmax(dim=1), tokens)  # [B, caps, C]
            poses = self._of_types(self.poses, tokens)  # [B, caps, dim]
            logits = None if self.activations is None else self._of_types(self.activations, tokens).squeeze(-1)
        else:
            poses = self.poses(tokens).unflatten(-1, (self.caps, self.dim))  # [B, N, caps, dim]
            logits = None if self.activations is None else self.activations(tokens)  # [B, N, caps]
        present = self._present(poses, mask)  # [B, caps] or [B, N, caps]
        if logits is None:
            poses = squash(poses)
            lengths = torch.linalg.vector_norm(poses, dim=-1)
            poses, activations = poses * present.unsqueeze(-1), lengths * (present > 0)
        else:
            poses = math.sqrt(self.dim) * F.normalize(poses, dim=-1) * (present > 0).unsqueeze(-1)
            activations = logits.sigmoid() * (present > 0)
        if self.pool == "none":
            places = features.shape[2:] if features.dim() == 4 else ()
            if places:
                return Capsules(poses.unflatten(1, places), activations.unflatten(1, places))
            return Capsules(poses.flatten(1, 2), activations.flatten(1, 2))
        return Capsules(poses, activations)

    def _of_types(self, linear: nn.Linear, pooled: Tensor) -> Tensor:
        """Return the outputs of a linear map that belong to each type, [B, caps, d], for its features [B, caps, C]."""
        weight, bias = (each.unflatten(0, (self.caps, -1)) for each in (linear.weight, linear.bias))
        return torch.einsum("bkc,kdc->bkd", pooled, weight) + bias  # [B, caps, d]

    def _tokens(self, features: Tensor) -> Tensor:
        """Return features as tokens [B, N, C]; maps position by position, a vector as one token."""
        size = self.norm.normalized_shape[0]
        axis = {2: 1, 3: 2, 4: 1}.get(features.dim())
        if axis is None or features.shape[axis] != size:
            raise ShapeError(
                f"features: expected [B, {size}, H, W], [B, N, {size}] or [B, {size}], got {tuple(features.shape)}"
            )
        if 0 in features.shape[1:]:
            raise ShapeError(f"features: expected at least one position or token, got {tuple(features.shape)}")
        if features.dim() == 2:
            return features.unsqueeze(1)
        return features.flatten(2).transpose(1, 2) if features.dim() == 4 else features

    def _present(self, poses: Tensor, mask: Tensor | None) -> Tensor:
        """Return the factor of each capsule: 0 if its token is masked or it is dropped, else 1, or more in training."""
        present = F.dropout(poses.new_ones(poses.shape[:-1]), self.dropout, self.training)
        if mask is not None and self.pool == "none":
            present = present * mask.unsqueeze(-1)
        return present

    def extra_repr(self) -> str:
        return f"caps={self.caps}, dim={self.dim}, pool={self.pool!r}, dropout={self.dropout}"


def check_mask(mask: Tensor | None, tokens: Tensor) -> None:
    """Raise ShapeError unless a mask is bool [B, N] for tokens [B, N, C] and leaves each sample a token.

    Args:
        mask: The mask, or None.
        tokens: The tokens.

    Raises:
        ShapeError: If the mask does not fit, or masks all tokens of a sample.
    """
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != tokens.shape[:2]:
        raise ShapeError(f"mask: expected bool {tuple(tokens.shape[:2])}, got {mask.dtype} {tuple(mask.shape)}")
    if torch.compiler.is_compiling() or transforms_active() or mask.is_meta:
        return
    empty = (~mask.any(dim=1)).nonzero().flatten()
    if len(empty):
        raise ShapeError(f"mask: expected at least one token per sample, got 0 in sample {int(empty[0])}")


class SharedCaps(CapsLinear):
    """A dense capsule layer whose matrices belong to the types of the children: all positions share them.

    The children are a grid [B, H, W, types, P], or a set of any multiple of `types` in that order. The votes are
    divided by the square root of the number of positions, so that their sum keeps its size. Routings that read poses
    (self-routing, Heinsen's) take means or count the children themselves, and their votes are left alone.

    Args:
        in_caps: Number of types of children.
        out_caps: Number of parents.
        in_dim: Pose size of the children.
        out_dim: Pose size of the parents.
        routing: As in `CapsLinear`.
        bias: As in `CapsLinear`.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Shape:
        children: poses [B, H, W, in_caps, in_dim] or [B, N * in_caps, in_dim]; returns poses [B, out_caps, out_dim].

    Example:
        >>> layer = SharedCaps(4, 10, in_dim=8, out_dim=16)
        >>> layer(Capsules(torch.randn(2, 7, 7, 4, 8), torch.ones(2, 7, 7, 4))).poses.shape
        torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        in_caps: int,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        routing: RoutingSpec | None = None,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive(in_caps=in_caps)
        # With a free number of children a router has parameters that all children share.
        super().__init__(None, out_caps, in_dim, out_dim, routing=routing, bias=bias, device=device, dtype=dtype)
        self.in_caps = in_caps
        shape = (in_caps, out_caps, in_dim, out_dim)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))  # [types, J, P, D]
        self.reset_parameters()

    def _present(self, children: Capsules, mask: Tensor | None) -> tuple[Capsules, Tensor | None]:
        """Return the children and their mask as sets; the votes of a sample count its present children, not all."""
        flat, mask = super()._present(children, mask)
        if mask is None or self.routing.contract.reads_poses:
            return flat, mask
        present = mask.sum(dim=1).clamp(min=1)  # [B]
        scale = (mask.shape[1] / present).sqrt().to(flat.poses.dtype)  # [B]
        return flat._replace(poses=flat.poses * scale[:, None, None]), mask

    def _matrices(self, children: Capsules) -> Tensor:
        """Return the weight of every child, [N * types, J, P, D], or of all, [J, P, D], if there is one type."""
        types = self.weight.shape[0]
        places, rest = divmod(children.poses.shape[1], types)
        if rest:
            raise ShapeError(f"poses: expected a multiple of {types} children, got {tuple(children.poses.shape)}")
        weight = self.weight if self.routing.contract.reads_poses else self.weight / math.sqrt(places)
        if types == 1:
            return weight[0]
        return weight if places == 1 else weight.expand(places, *weight.shape).flatten(0, 1)


class CapsHead(nn.Module):
    """Class capsules on the features of any backbone: primary capsules, then routing to the classes.

    With pooling (the default) there are `caps` primary capsules for inputs of any size, and the head adds little to the
    time and memory of a backbone. Without it there are `caps` of them at each position or token, which share the
    matrices of their type, and the coupling shows which positions a class is made of.

    Args:
        in_features: Number of channels of the features.
        num_classes: Number of classes.
        caps: Number of types of primary capsules. More than classes is the safe choice.
        dim: Pose size of the primary capsules.
        class_dim: Pose size of the class capsules.
        routing: A router, its name, or a table with its name and options.
        pool: `attention` or `none`; see `FeatureCaps`.
        dropout: Probability that a primary capsule is dropped in training.
        device: Device of the parameters.
        dtype: Type of the parameters.

    Attributes:
        primary: From features to primary capsules.
        classes: From primary capsules to class capsules.

    Shape:
        features: [B, C, H, W], [B, N, C] or [B, C]; mask: bool [B, N]; returns poses [B, num_classes, class_dim],
        activations [B, num_classes].

    Raises:
        ConfigError: If a size is not positive or an option is unknown or out of range.

    Example:
        >>> head = CapsHead(512, 10)
        >>> head(torch.randn(2, 512, 7, 7)).poses.shape
        torch.Size([2, 10, 16])
        >>> head(torch.randn(2, 197, 512), torch.ones(2, 197, dtype=torch.bool)).activations.shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        caps: int = 32,
        dim: int = 8,
        class_dim: int = 16,
        routing: RoutingSpec = "dynamic",
        pool: Pool = "attention",
        dropout: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        router = make_router(routing)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.primary = FeatureCaps(
            in_features, caps, dim, pool=pool, dropout=dropout, activations=router.reads_activations, **factory
        )
        layer = CapsLinear if pool == "attention" else SharedCaps
        self.classes = layer(caps, num_classes, dim, class_dim, routing=router, bias=router.takes_bias, **factory)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Capsules:
        """Compute the class capsules.

        Args:
            features: Output of a backbone: feature maps, tokens or vectors.
            mask: Which tokens are present.

        Shape:
            features: [B, C, H, W], [B, N, C] or [B, C]; mask: bool [B, N]; returns poses [B, num_classes, class_dim].

        Returns:
            The class capsules.

        Raises:
            ShapeError: If features or mask have another shape, or a sample has no token.
        """
        return self.classes(self.primary(features, mask), self._child_mask(mask))

    def trace(self, features: Tensor, mask: Tensor | None = None) -> Trace:
        """Route with the reference and keep every iteration.

        Args:
            features: Output of a backbone.
            mask: Which tokens are present.

        Returns:
            The iterations, stacked along a first axis R.
        """
        return self.classes.trace(self.primary(features, mask), mask=self._child_mask(mask))

    def _child_mask(self, mask: Tensor | None) -> Tensor | None:
        """Return the mask of the primary capsules, [B, N * caps]; with pooling all are present."""
        if mask is None or self.primary.pool == "attention":
            return None
        return mask.repeat_interleave(self.primary.caps, dim=1)
