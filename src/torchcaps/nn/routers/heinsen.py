"""The router of Heinsen 2022, with what it learns: predictions of the children and the value of using them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchcaps import ops
from torchcaps.nn.routers.base import LAWS, ROUTERS, Router, check_unprepared, prepared
from torchcaps.ops._iterations import check_iters
from torchcaps.ops.squash import SquashForm, check_squash
from torchcaps.types import Capsules


@ROUTERS.register("heinsen")
class HeinsenRouting(Router):
    """Routing of vectors in sequences (Heinsen 2022); see `ops.heinsen_routing`.

    All children share the parameters of the router, so that a sequence may have any length. With a weight that they
    share too (`CapsLinear(None, ...)`, `CapsHead(..., caps=1, pool="none")`) no vote is computed at all.

    Args:
        iters: Number of routing iterations.
        squash: Form of the squash whose length is the activation; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> router = HeinsenRouting(iters=2)
        >>> router.prepare(6, 3, 8, 4)
        >>> trace = router.trace(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6)))
        >>> trace.extras["credit"].shape
        torch.Size([2, 2, 6, 3])
    """

    algorithm = "heinsen"
    # Each parent has parameters of its own, so that parents cannot be exchanged.
    laws = LAWS - {"permuting_parents_permutes"}

    def __init__(self, *, iters: int = 2, squash: SquashForm = "standard") -> None:
        super().__init__()
        check_iters(iters)
        check_squash(squash)
        self.iters = iters
        self.squash: SquashForm = squash
        self.predict: nn.Parameter | None = None  # [D, P]
        self.predict_gain: nn.Parameter | None = None  # [J, P]
        self.predict_bias: nn.Parameter | None = None  # [J, P]
        self.score_bias: nn.Parameter | None = None  # [J]
        self.beta_weight: nn.Parameter | None = None  # [2, J, P]
        self.beta_bias: nn.Parameter | None = None  # [2, J]

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
        check_unprepared(self.predict)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.predict = empty(out_dim, in_dim)
        self.predict_gain, self.predict_bias = empty(out_caps, in_dim), empty(out_caps, in_dim)
        self.score_bias = empty(out_caps)
        self.beta_weight, self.beta_bias = empty(2, out_caps, in_dim), empty(2, out_caps)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the predictions as the released code does; start from a benefit near 1 and a cost near 0."""
        if self.predict is None:
            return
        nn.init.normal_(self.predict, std=self.predict.shape[0] ** -0.5)
        nn.init.normal_(prepared(self.predict_gain))
        nn.init.zeros_(prepared(self.predict_bias))
        nn.init.zeros_(prepared(self.score_bias))
        nn.init.normal_(prepared(self.beta_weight), std=0.1)
        nn.init.constant_(prepared(self.beta_bias)[0], 1.0)
        nn.init.zeros_(prepared(self.beta_bias)[1])

    def params(self, children: Capsules, window: ops.Window | None = None) -> dict[str, Any]:
        names = ("predict", "predict_gain", "predict_bias", "score_bias", "beta_weight", "beta_bias")
        return {**self.options(), **{name: prepared(getattr(self, name)) for name in names}}
