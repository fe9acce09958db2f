"""Numbers that differ from iteration to iteration of EM routing: the inverse temperature and the sharpness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real

from torchcaps._registry import Registry
from torchcaps.errors import ConfigError
from torchcaps.ops._iterations import check_iters

Sharpness = float | Sequence[float] | Callable[[int], float]
InverseTemp = str | float | Sequence[float] | Callable[[int], float]

# Beyond it the logits of votes of 1e12 leave the range of float32.
MOST_SHARPNESS = 1000.0

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
    """0.02 * (1 - 0.95^(iteration+1)): 0.001, 0.00195, 0.0028525, from the authors' released program.

    The program multiplies 0.01 * (1 - 0.95^(iteration+1)) with a cost in logarithms of variances, which is twice the
    cost in logarithms of deviations that is taken here and in the paper. Its class layer takes a quarter of it.
    """
    return 0.02 * (1 - 0.95 ** (iteration + 1))


@SCHEDULES.register("linear")
def linear(iteration: int) -> float:
    """1, 2, 3, ...: one more in each iteration."""
    return 1.0 + iteration


def inverse_temps(inverse_temp: InverseTemp, iters: int) -> tuple[float, ...]:
    """Return one inverse temperature per iteration.

    Args:
        inverse_temp: The name of a schedule, a number, one number per iteration, or a function of the iteration.
        iters: Number of routing iterations.

    Returns:
        A number per iteration.

    Raises:
        ConfigError: If there is not one finite number of at least 0 per iteration.

    Example:
        >>> inverse_temps("linear", 3), inverse_temps(0.5, 2)
        ((1.0, 2.0, 3.0), (0.5, 0.5))
    """
    if isinstance(inverse_temp, str):
        inverse_temp = SCHEDULES[inverse_temp]
    return per_iteration("inverse_temp", inverse_temp, iters)


def sharpnesses(sharpness: Sharpness, iters: int) -> tuple[float, ...]:
    """One sharpness per iteration, from a number, a sequence or a function.

    Args:
        sharpness: The factor on the log density in the E-step that follows an iteration.
        iters: Number of routing iterations.

    Returns:
        A number per iteration. No E-step follows the last iteration, so that its number has no effect.

    Raises:
        ConfigError: If there is not one number from 0 to 1000 per iteration.

    Example:
        >>> sharpnesses(0.25, 3), sharpnesses([0.25, 1, 1], 3)
        ((0.25, 0.25, 0.25), (0.25, 1.0, 1.0))
    """
    values = per_iteration("sharpness", sharpness, iters)
    if max(values) > MOST_SHARPNESS:
        raise ConfigError(f"sharpness: expected values of at most {MOST_SHARPNESS}, got {values}")
    return values


def per_iteration(name: str, value: float | Sequence[float] | Callable[[int], float], iters: int) -> tuple[float, ...]:
    """One number per iteration; `name` is the argument that an error names.

    Args:
        name: Name of the argument.
        value: One number, one per iteration, or a function of the iteration.
        iters: Number of iterations.

    Returns:
        The numbers.
    """
    check_iters(iters)
    kinds = "the name of a schedule, numbers or a function" if name == "inverse_temp" else "numbers or a function"
    if callable(value):
        values = tuple(float(value(iteration)) for iteration in range(iters))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        values = tuple(float(each) for each in value)
    elif isinstance(value, Real) and not isinstance(value, bool):
        values = (float(value),) * iters
    else:
        raise ConfigError(f"{name}: expected {kinds}, got {value!r}")
    if len(values) != iters:
        raise ConfigError(f"{name}: expected {iters} values, one per iteration, got {len(values)}")
    if not all(math.isfinite(each) and each >= 0 for each in values):
        raise ConfigError(f"{name}: expected finite values of at least 0, got {values}")
    return values
