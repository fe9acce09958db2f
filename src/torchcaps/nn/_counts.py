"""The sizes that a layer is made with."""

from __future__ import annotations

from torchcaps.errors import ConfigError


def check_counts(**counts: int) -> None:
    """Raise unless each is a count of at least 1.

    >>> check_counts(in_caps=1152, out_caps=0)
    Traceback (most recent call last):
    torchcaps.errors.ConfigError: out_caps: expected a count of at least 1, got 0
    """
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name}: expected a count of at least 1, got {value!r}")
