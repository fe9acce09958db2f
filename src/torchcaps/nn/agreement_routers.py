"""Routers that ask how well a vote agrees with a parent, or with the other votes: k-means and both attentions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn.routers import LAWS, ROUTERS, Router, prepared, unprepared
from torchcaps.ops import _dispatch
from torchcaps.ops._steps import check_iters
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.types import Capsules


class AgreementRouting(Router):
    """What these routers share: they look at votes alone, and their twin takes what they learned beside its options."""

    laws = LAWS - {"inactive_child_has_no_vote"}

    def learned(self) -> dict[str, Any]:
        """The parameters, as the routing in `ops` names them."""
        return {}

    def inputs(
        self, votes: Tensor, children: Capsules, *, bias: Tensor | None, window: ops.Window | None
    ) -> dict[str, Any]:
        return {**super().inputs(votes, children, bias=bias, window=window), **self.learned()}

    def route(
        self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, backend: str = "auto"
    ) -> Capsules:
        twin = _dispatch.twin(backend, self.algorithm, children.poses, weight)
        if twin is None:
            return super().route(children, weight, bias=bias)
        return twin.route(children.poses, weight, **self.learned(), **self.options())


@ROUTERS.register("kmeans")
class KMeansRouting(AgreementRouting):
    """Routing as clustering (Su Jianlin 2018); see `ops.kmeans_routing` for the options.

    The children's activations are the lengths of their poses, so that the votes carry them already.

    >>> children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
    >>> KMeansRouting(iters=3)(torch.randn(2, 6, 3, 4), children).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "kmeans"

    def __init__(self, iters: int = 3, *, inverse_temp: float = 1.0) -> None:
        super().__init__()
        check_kmeans_options(iters, inverse_temp)
        self.iters = iters
        self.inverse_temp = inverse_temp

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters, "inverse_temp": self.inverse_temp}


@ROUTERS.register("attention")
class AttentionRouting(AgreementRouting):
    """Inverted dot-product attention (Tsai et al. 2020); see `ops.attention_routing` for what it computes.

    It learns the gain and the offset of the layer normalisation, one per dimension of a parent. For routing that is
    concurrent over the layers of a network, call `update` on each of them in turn.

    >>> router = AttentionRouting(iters=2)
    >>> router.prepare(6, 3, 8, 4)
    >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "attention"

    def __init__(self, iters: int = 3) -> None:
        super().__init__()
        check_iters(iters)
        self.iters = iters
        self.gain: nn.Parameter | None = None  # [D]
        self.offset: nn.Parameter | None = None  # [D]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.gain)
        if out_dim < 2:
            raise ConfigError(
                f"out_dim: expected at least 2 with {type(self).__name__}, got {out_dim} "
                "(layer normalisation makes 0 of a single number); use more dimensions, or kmeans or dynamic routing"
            )
        self.gain = nn.Parameter(torch.ones(out_dim))
        self.offset = nn.Parameter(torch.zeros(out_dim))

    def options(self) -> dict[str, Any]:
        return {"iters": self.iters}

    def learned(self) -> dict[str, Any]:
        return {"gain": prepared(self.gain), "offset": prepared(self.offset)}

    def update(
        self,
        children: Capsules,
        weight: Tensor,
        parents: Capsules | None = None,
        *,
        window: ops.Window | None = None,
        backend: str = "auto",
    ) -> Capsules:
        """One iteration from the parents found so far: a step of concurrent routing (Tsai et al. 2020, procedure 2).

        children [B, I, P], weight [I, J, P, D] and parents [B, J, D] give the parents anew; without parents it is the
        first, uniform iteration. Through a `window` (that of `CapsConv2d` or `ClassCaps`) both are grids, and the
        reference serves. All layers of a network move together when each is updated from what the layer below and it
        itself had before.

        >>> router = AttentionRouting(iters=2)
        >>> router.prepare(6, 3, 8, 4)
        >>> children, weight = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6)), torch.randn(6, 3, 8, 4)
        >>> first = router.update(children, weight)
        >>> second = router.update(children, weight, first)
        >>> torch.allclose(second.poses, router.route(children, weight).poses)
        True
        """
        start = None if parents is None else parents.poses
        if window is not None:
            self._check_reference(backend, "over a grid")
            start = None if start is None else start.flatten(0, -3)  # [B*H'*W', J, D]
            votes = self.votes(window.gather(children), weight, window)  # [B*H'*W', K*K*I, J, D]
            routed = ops.attention_routing(votes, start, iters=1, softmax=window.softmax, **self.learned())
            return window.spread(routed.capsules)
        twin = _dispatch.twin(backend, self.algorithm, children.poses, weight)
        if twin is not None:
            return twin.route(children.poses, weight, start, iters=1, **self.learned())
        return ops.attention_routing(ops.vote(children.poses, weight), start, iters=1, **self.learned()).capsules


@ROUTERS.register("self_attention")
class SelfAttentionRouting(AgreementRouting):
    """Self-attention routing of Efficient-CapsNet (Mazzia et al. 2021); see `ops.self_attention_routing`.

    It learns the prior of each pair of child and parent, [I, J], starting from zero. In a convolution the pairs are
    those of a child's place in the kernel and its type, as for the weight. Where the number of children is free, as in
    `CapsLinear(None, ...)` and `ClassCaps`, no child can have a prior of its own, and all share one per parent, [1, J].

    >>> router = SelfAttentionRouting()
    >>> router.prepare(6, 3, 8, 4)
    >>> router(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "self_attention"
    laws = AgreementRouting.laws - {"iterations_are_counted", "one_iteration_is_uniform"}

    def __init__(self) -> None:
        super().__init__()
        self.prior: nn.Parameter | None = None  # [I, J]

    def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int) -> None:
        unprepared(self.prior)
        self.prior = nn.Parameter(torch.zeros(1 if in_caps is None else in_caps, out_caps))

    def options(self) -> dict[str, Any]:
        return {}

    def learned(self) -> dict[str, Any]:
        return {"prior": prepared(self.prior)}
