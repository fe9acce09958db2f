"""The router of synchronisation, with the frequencies that it learns."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps import ops
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops.kuramoto.reference import check_kuramoto_options
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.types import Capsules


@ROUTERS.register("kuramoto")
class KuramotoRouting(Router):
    """Routing by synchronisation: children and parents as oscillators on a sphere; see `ops.kuramoto_routing`.

    The router learns the frequency of each parent. The activations of the children are the lengths of their poses, so
    that the votes contain them.

    Args:
        iters: Number of routing iterations.
        gain: Factor on the logits.
        step: Step size of the oscillators.
        squash: Form of the squash whose length is the activation; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> router = KuramotoRouting(iters=3)
        >>> router.prepare(6, 3, 8, 4)
        >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "kuramoto"
    parent_axes = (("omega", 0),)
    laws = LAWS - {"inactive_child_has_no_vote"}

    def __init__(
        self, iters: int = 3, *, gain: float = 4.0, step: float = 1.0, squash: SquashForm = "standard"
    ) -> None:
        super().__init__()
        check_kuramoto_options(iters, gain, step)
        check_squash(squash)
        self.iters = iters
        self.gain = gain
        self.step = step
        self.squash: SquashForm = squash
        self.omega: nn.Parameter | None = None  # [J, D, D]

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
        check_unprepared(self.omega)
        self.omega = nn.Parameter(torch.empty(out_caps, out_dim, out_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the frequencies to 0."""
        if self.omega is not None:
            nn.init.zeros_(self.omega)

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        return {**self.options(), "omega": prepared(self.omega)}
