"""The routing contract: one `Routing` per algorithm, with one `Kernel` per fast implementation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchcaps._registry import Registry, check_options
from torchcaps.errors import ConfigError
from torchcaps.ops._iterations import Steps
from torchcaps.ops._kernel import Kernel, keyword_parameters


@dataclass(frozen=True)
class Routing:
    """A routing algorithm: its reference, its kernels, and which inputs it reads.

    The samples of a batch do not depend on each other. Beside its kernels every routing has the backend `recompute`,
    which runs the reference on one piece of the batch after the other.

    Args:
        name: Name in `ROUTINGS`.
        steps: The reference, a generator function of the votes.
        kernels: Fast implementations, the preferred one first.
        reads_activations: `steps` takes `activations` [B, I]. Otherwise the length of a child's votes is its presence.
        reads_poses: `steps` takes the children's `poses` [B, I, P].
        takes_bias: `steps` takes a `bias` [J, D] of the parents.
        per_sample: Names of the tensors whose first axis is the batch, beside votes, activations and poses.

    Example:
        >>> ROUTINGS["em"].reads_activations, ROUTINGS["dynamic"].takes_bias
        (True, True)
    """

    name: str
    steps: Steps
    kernels: tuple[Kernel, ...] = ()
    reads_activations: bool = False
    reads_poses: bool = False
    takes_bias: bool = False
    per_sample: frozenset[str] = frozenset()
    options: frozenset[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        options = keyword_parameters(self.steps)
        given = {"votes"} | ({"activations"} if self.reads_activations else set())
        given |= {"poses"} if self.reads_poses else set()
        object.__setattr__(self, "options", None if options is None else options - given)

    @property
    def has_softmax(self) -> bool:
        """Whether `steps` takes the softmax over the parents, so that its coupling can be made uniform."""
        return self.options is None or "softmax" in self.options

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of all implementations, available or not: the reference first."""
        return ("reference", *dict.fromkeys([*(kernel.backend for kernel in self.kernels), "recompute"]))

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise ConfigError on an option that the reference does not take.

        Args:
            options: Options by name.
        """
        if self.options is not None:
            check_options(options, self.options, f"{self.name} routing")

    def check_backend(self, backend: str) -> None:
        """Raise ConfigError unless the routing has a backend.

        Args:
            backend: `auto` or one of `backends`.

        Raises:
            ConfigError: If there is no such backend.
        """
        known = ("auto", *self.backends)
        if backend not in known:
            raise ConfigError(f"backend: expected one of {', '.join(known)} for {self.name} routing, got '{backend}'")


ROUTINGS: Registry[Routing] = Registry("routing")


def register_routing(routing: Routing) -> Routing:
    """Enter a routing in `ROUTINGS` under its name.

    Args:
        routing: The algorithm.

    Returns:
        The same object.

    Raises:
        ConfigError: If the name is taken.

    Example:
        >>> register_routing(routing)  # doctest: +SKIP
    """
    ROUTINGS.add(routing.name, routing)
    return routing


__all__ = ["ROUTINGS", "Kernel", "Routing", "register_routing"]
