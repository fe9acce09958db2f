"""Checks of the sizes that a layer is made with."""

from __future__ import annotations

from torchcaps.errors import ConfigError


def check_positive(**counts: int) -> None:
    """Raise ConfigError unless each value is a whole number of at least 1.

    Args:
        **counts: Values by the name of their argument.

    Raises:
        ConfigError: If a value is not a positive whole number.

    Example:
        >>> check_positive(in_caps=1152, out_caps=0)
        Traceback (most recent call last):
        torchcaps.errors.ConfigError: out_caps: expected a count of at least 1, got 0
    """
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name}: expected a count of at least 1, got {value!r}")
