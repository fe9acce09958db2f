"""The control routers, which decide nothing: uniform and random."""

from __future__ import annotations

from typing import Any

from torchcaps.nn.routers import ROUTERS, SquashRouting
from torchcaps.ops.uniform.random import check_random_options

# There is nothing to iterate.
_LAWS = SquashRouting.laws - {"iterations_are_counted", "one_iteration_is_uniform"}


@ROUTERS.register("uniform")
class UniformRouting(SquashRouting):
    """No routing: every child gives every parent the same share; see `ops.uniform_routing`.

    >>> import torch
    >>> from torchcaps.types import Capsules
    >>> UniformRouting()(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "uniform"
    laws = _LAWS

    def options(self) -> dict[str, Any]:
        return {}


@ROUTERS.register("random")
class RandomRouting(SquashRouting):
    """Routing by lot: shares drawn once from a seed, the same for all samples; see `ops.random_routing`.

    Child n of a layer has the same shares however many children there are. Layers with the same seed and number of
    parents have the same shares.

    >>> import torch
    >>> from torchcaps.types import Capsules
    >>> RandomRouting(seed=1)(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
    torch.Size([2, 3, 4])
    """

    algorithm = "random"
    laws = _LAWS - {"permuting_children_changes_nothing", "permuting_parents_permutes"}

    def __init__(self, *, seed: int = 0, spread: float = 1.0) -> None:
        super().__init__()
        check_random_options(seed, spread)
        self.seed = seed
        self.spread = spread

    def options(self) -> dict[str, Any]:
        return {"seed": self.seed, "spread": self.spread}
