"""The router of dynamic routing by agreement."""

from __future__ import annotations

from torchcaps.nn.routers.base import LAWS, ROUTERS, Router
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options
from torchcaps.ops.squash import SquashForm


@ROUTERS.register("dynamic")
class DynamicRouting(Router):
    """Dynamic routing by agreement (Sabour et al. 2017); see `ops.dynamic_routing`.

    The activations of the children are the lengths of their poses, so that the votes contain them.

    Args:
        iters: Number of routing iterations.
        leaky: Add one more parent with logit 0, whose share is dropped.
        grad: `all` differentiates through all iterations, `last` through the last one.
        squash: Form of the squash; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> import torch
        >>> from torchcaps import Capsules
        >>> children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
        >>> DynamicRouting(iters=3)(torch.randn(2, 6, 3, 4), children).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "dynamic"
    parent_axes = ()
    laws = LAWS - {"inactive_child_has_no_vote"}

    def __init__(
        self, iters: int = 3, *, leaky: bool = False, grad: GradMode = "all", squash: SquashForm = "standard"
    ) -> None:
        super().__init__()
        check_routing_options(iters, grad, squash)
        self.iters = iters
        self.leaky = leaky
        self.grad: GradMode = grad
        self.squash: SquashForm = squash
        if leaky:
            self.laws = self.laws - {"coupling_sums_to_one"}
