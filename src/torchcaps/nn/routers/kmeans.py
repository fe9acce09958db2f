"""The router of k-means routing."""

from __future__ import annotations

from torchcaps.nn.routers.base import LAWS, ROUTERS, Router
from torchcaps.ops.kmeans.reference import check_kmeans_options
from torchcaps.ops.squash import SquashForm


@ROUTERS.register("kmeans")
class KMeansRouting(Router):
    """Routing as clustering (Su Jianlin 2018); see `ops.kmeans_routing`.

    The activations of the children are the lengths of their poses, so that the votes contain them.

    Args:
        iters: Number of routing iterations.
        inverse_temp: Factor on the logits.
        squash: Form of the squash; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> import torch
        >>> from torchcaps import Capsules
        >>> children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
        >>> KMeansRouting(iters=3)(torch.randn(2, 6, 3, 4), children).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "kmeans"
    parent_axes = ()
    laws = LAWS - {"inactive_child_has_no_vote"}

    def __init__(self, iters: int = 3, *, inverse_temp: float = 1.0, squash: SquashForm = "half") -> None:
        super().__init__()
        check_kmeans_options(iters, inverse_temp, squash)
        self.iters = iters
        self.inverse_temp = inverse_temp
        self.squash: SquashForm = squash
