"""The router of self-attention routing, with the prior that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps import ops
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.types import Capsules


@ROUTERS.register("self_attention")
class SelfAttentionRouting(Router):
    """Self-attention routing of Efficient-CapsNet (Mazzia et al. 2021); see `ops.self_attention_routing`.

    The router learns a prior for each pair of child and parent, [I, J]. In a convolution a child is a place in the
    kernel and a type, as for the weight. Where the number of children is free (`CapsLinear(None, ...)`, `ClassCaps`)
    all children share one prior per parent, [1, J].

    Args:
        squash: Form of the squash; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If `squash` is unknown.

    Example:
        >>> router = SelfAttentionRouting()
        >>> router.prepare(6, 3, 8, 4)
        >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "self_attention"
    parent_axes = (("prior", -1),)
    laws = LAWS - {"inactive_child_has_no_vote", "iterations_are_counted", "one_iteration_is_uniform"}

    def __init__(self, *, squash: SquashForm = "exponential") -> None:
        super().__init__()
        check_squash(squash)
        self.squash: SquashForm = squash
        self.prior: nn.Parameter | None = None  # [I, J]

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
        check_unprepared(self.prior)
        self.prior = nn.Parameter(torch.empty(1 if in_caps is None else in_caps, out_caps, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the prior to 0."""
        if self.prior is not None:
            nn.init.zeros_(self.prior)

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        return {**self.options(), "prior": prepared(self.prior)}
