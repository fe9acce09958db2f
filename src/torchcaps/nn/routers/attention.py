"""The router of inverted dot-product attention, with the layer normalisation that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops._iterations import check_iters
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.types import Capsules


@ROUTERS.register("attention")
class AttentionRouting(Router):
    """Inverted dot-product attention (Tsai et al. 2020); see `ops.attention_routing`.

    The router learns the gain and the offset of the layer normalisation, one number per dimension of a parent. For
    concurrent routing over the layers of a network, call `update` on each of them in turn.

    Args:
        iters: Number of routing iterations.
        squash: Form of the squash whose length is the activation; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> router = AttentionRouting(iters=2)
        >>> router.prepare(6, 3, 8, 4)
        >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "attention"
    parent_axes = ()
    laws = LAWS - {"inactive_child_has_no_vote"}

    def __init__(self, iters: int = 3, *, squash: SquashForm = "standard") -> None:
        super().__init__()
        check_iters(iters)
        check_squash(squash)
        self.iters = iters
        self.squash: SquashForm = squash
        self.gain: nn.Parameter | None = None  # [D]
        self.offset: nn.Parameter | None = None  # [D]

    def prepare(
        self,
        in_caps: int | None,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_unprepared(self.gain)
        if out_dim < 2:
            raise ConfigError(
                f"out_dim: expected at least 2 with {type(self).__name__}, got {out_dim} "
                "(layer normalisation makes 0 of a single number); use more dimensions, or kmeans or dynamic routing"
            )
        self.gain = nn.Parameter(torch.empty(out_dim, device=device, dtype=dtype))
        self.offset = nn.Parameter(torch.empty(out_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the gain to 1 and the offset to 0."""
        if self.gain is not None and self.offset is not None:
            nn.init.ones_(self.gain)
            nn.init.zeros_(self.offset)

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        return {**self.options(), "gain": prepared(self.gain), "offset": prepared(self.offset)}

    def update(
        self,
        children: Capsules,
        weight: Tensor,
        parents: Capsules | None = None,
        *,
        window: ops.Window | None = None,
        backend: str = "auto",
    ) -> Capsules:
        """Compute one iteration from the present parents: a step of concurrent routing (Tsai et al. 2020, procedure 2).

        All layers of a network are routed together when each is updated from the present capsules of the layer below
        and from its own.

        Args:
            children: The lower capsules; a grid of them with a window.
            weight: The weight of the layer.
            parents: The present parents. Without them the iteration is the first, uniform one.
            window: The window of a convolutional layer.
            backend: Implementation, `auto` for the fastest available.

        Shape:
            children: [B, I, P]; weight: [I, J, P, D]; parents: [B, J, D]; returns [B, J, D].

        Returns:
            The next parents.

        Raises:
            ConfigError: If the backend cannot serve.

        Example:
            >>> router = AttentionRouting(iters=2)
            >>> router.prepare(6, 3, 8, 4)
            >>> children, weight = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6)), torch.randn(6, 3, 8, 4)
            >>> first = router.update(children, weight)
            >>> second = router.update(children, weight, first)
            >>> torch.allclose(second.poses, router.route(children, weight).poses)
            True
        """
        params = {**self.params(children, window), "iters": 1}
        if parents is not None:
            # Every position counts as a sample in a convolutional layer.
            params["parents"] = parents.poses if window is None else parents.poses.flatten(0, -3)  # [B, J, D]
        if window is None:
            return ops.route(children, weight, self.algorithm, backend=backend, **params)
        return ops.route_conv(children, weight, window, self.algorithm, backend=backend, **params)
