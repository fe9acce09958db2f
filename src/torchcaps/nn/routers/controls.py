"""The control routers, whose coupling does not depend on the votes: uniform and random."""

from __future__ import annotations

from torchcaps.nn.routers.base import LAWS, ROUTERS, Router
from torchcaps.ops.random.reference import check_random_options
from torchcaps.ops.squash import SquashForm, check_squash

# Without iterations, and with presence measured by length.
_LAWS = LAWS - {"inactive_child_has_no_vote", "iterations_are_counted", "one_iteration_is_uniform"}


@ROUTERS.register("uniform")
class UniformRouting(Router):
    """Uniform coupling: every child gives every parent the same share; see `ops.uniform_routing`.

    Args:
        squash: Form of the squash; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If `squash` is unknown.

    Example:
        >>> import torch
        >>> from torchcaps import Capsules
        >>> UniformRouting()(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "uniform"
    parent_axes = ()
    laws = _LAWS

    def __init__(self, *, squash: SquashForm = "standard") -> None:
        super().__init__()
        check_squash(squash)
        self.squash: SquashForm = squash


@ROUTERS.register("random")
class RandomRouting(Router):
    """Random coupling: fixed shares drawn from a seed, the same for all samples; see `ops.random_routing`.

    The shares of a child do not depend on the number of children. Layers with the same seed and number of parents have
    the same shares.

    Args:
        seed: Seed of the logits.
        std: Standard deviation of the logits.
        squash: Form of the squash; see `ops.squash`.

    Shape:
        votes [B, I, J, D], children [B, I, P]; returns poses [B, J, D], activations [B, J] and coupling [B, I, J].

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> import torch
        >>> from torchcaps import Capsules
        >>> RandomRouting(seed=1)(torch.randn(2, 6, 3, 4), Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))).poses.shape
        torch.Size([2, 3, 4])
    """

    algorithm = "random"
    laws = _LAWS - {"permuting_children_changes_nothing", "permuting_parents_permutes"}

    def __init__(self, *, seed: int = 0, std: float = 1.0, squash: SquashForm = "standard") -> None:
        super().__init__()
        check_random_options(seed, std)
        check_squash(squash)
        self.seed = seed
        self.std = std
        self.squash: SquashForm = squash
