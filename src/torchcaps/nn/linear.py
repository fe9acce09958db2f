"""A dense capsule layer: every child votes for every parent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn._counts import check_counts
from torchcaps.nn.routers import Router, make_router
from torchcaps.ops import vote
from torchcaps.ops._dispatch import Backend, check_backend
from torchcaps.types import Capsules, Trace


class CapsLinear(nn.Module):
    """Capsules in, capsules out: votes through one matrix per child and parent, then routing.

    children [B, in_caps, in_dim] (a grid is taken position by position) give parents [B, out_caps, out_dim]. With
    `in_caps=None` one matrix per parent is shared by all children, and their number is free. `bias` adds a learned
    vector to each parent before it is squashed, as the released code of Sabour et al. 2017 does. `routing` is a router,
    its name, or a table with its name and options; without it, dynamic routing.

    `backend` says what computes: `auto` the fastest available for the device and type, `reference` the definition (the
    one to take for second derivatives, forward-mode derivatives, vmap and ONNX), `lean`, `cpu` or `triton` that twin
    only, where the router has it.

    >>> layer = CapsLinear(1152, 10, in_dim=8, out_dim=16, routing="dynamic")
    >>> layer(Capsules(torch.randn(2, 1152, 8), torch.ones(2, 1152))).poses.shape
    torch.Size([2, 10, 16])
    """

    def __init__(
        self,
        in_caps: int | None,
        out_caps: int,
        in_dim: int,
        out_dim: int,
        *,
        routing: Router | str | Mapping[str, Any] | None = None,
        bias: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_counts(in_caps=1 if in_caps is None else in_caps, out_caps=out_caps, in_dim=in_dim, out_dim=out_dim)
        self.in_caps = in_caps
        self.routing = make_router("dynamic" if routing is None else routing)
        if bias and not self.routing.takes_bias:
            raise ConfigError(
                f"bias: expected False with {type(self.routing).__name__}, got True (that routing has no place for it)"
            )
        check_backend(backend, self.routing.algorithm)
        self.backend: Backend = backend
        self.routing.prepare(in_caps, out_caps, in_dim, out_dim)
        shape = (out_caps, in_dim, out_dim) if in_caps is None else (in_caps, out_caps, in_dim, out_dim)
        self.weight = nn.Parameter(torch.empty(shape))  # [I, J, P, D]
        self.bias = nn.Parameter(torch.empty(out_caps, out_dim)) if bias else None  # [J, D]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight anew: deviation 0.1, and 0.1 for the bias, the start values of the released code."""
        nn.init.trunc_normal_(self.weight, std=0.1, a=-0.2, b=0.2)
        if self.bias is not None:
            nn.init.constant_(self.bias, 0.1)

    def forward(self, children: Capsules) -> Capsules:
        return self.routing.route(self._flat(children), self.weight, bias=self.bias, backend=self.backend)

    def trace(self, children: Capsules) -> Trace:
        """Route with every iteration kept."""
        children = self._flat(children)
        return self.routing.trace(vote(children.poses, self.weight), children, bias=self.bias)

    def extra_repr(self) -> str:
        in_dim, out_dim = self.weight.shape[-2:]
        sizes = f"in_caps={self.in_caps}, out_caps={self.weight.shape[-3]}, in_dim={in_dim}, out_dim={out_dim}"
        return sizes if self.backend == "auto" else f"{sizes}, backend={self.backend!r}"

    def _flat(self, children: Capsules) -> Capsules:
        if not isinstance(children, Capsules):
            raise ShapeError(f"children: expected Capsules(poses, activations), got {type(children).__name__}")
        return children.flatten()
