"""How the inverse temperature of EM routing rises from iteration to iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.ops._steps import check_iters

InverseTemp = str | float | Sequence[float] | Callable[[int], float]

SCHEDULES: Registry[Callable[[int], float]] = Registry("inverse_temp")


@SCHEDULES.register("paper")
def paper(iteration: int) -> float:
    """1 - 0.95^(iteration+1): 0.05, 0.0975, 0.1426.

    Hinton et al. 2018 say only that it rises by a fixed schedule. This one has the shape that the authors gave later
    and a scale at which a cost of the paper's own units moves an activation; theirs is a hundred times smaller.
    """
    return 1 - 0.95 ** (iteration + 1)


@SCHEDULES.register("released")
def released(iteration: int) -> float:
    """0.01 * (1 - 0.95^(iteration+1)), from the released code; its class layer takes a quarter of it."""
    return 0.01 * (1 - 0.95 ** (iteration + 1))


@SCHEDULES.register("linear")
def linear(iteration: int) -> float:
    """1, 2, 3, ...: one more in each iteration."""
    return 1.0 + iteration


def inverse_temps(inverse_temp: InverseTemp, iters: int) -> tuple[float, ...]:
    """One inverse temperature per iteration, from a schedule's name, a number, a sequence or a function.

    >>> inverse_temps("linear", 3), inverse_temps(0.5, 2)
    ((1.0, 2.0, 3.0), (0.5, 0.5))
    """
    check_iters(iters)
    if isinstance(inverse_temp, str):
        inverse_temp = SCHEDULES[inverse_temp]
    if inverse_temp is None:
        raise ConfigError("inverse_temp: expected the name of a schedule, numbers or a function, got None")
    if callable(inverse_temp):
        values = tuple(float(inverse_temp(iteration)) for iteration in range(iters))
    elif isinstance(inverse_temp, Sequence):
        values = tuple(float(value) for value in inverse_temp)
    else:
        values = (float(inverse_temp),) * iters
    if len(values) != iters:
        raise ConfigError(f"inverse_temp: expected {iters} values, one per iteration, got {len(values)}")
    if not all(math.isfinite(value) and value >= 0 for value in values):
        raise ConfigError(f"inverse_temp: expected finite values of at least 0, got {values}")
    return values
