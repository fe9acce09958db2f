"""Imports of optional packages, with one sentence where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from torchcaps.errors import ConfigError


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package.

    Args:
        package: Name of the module.
        extra: Extra of torchcaps that installs it.

    Returns:
        The module.

    Raises:
        ConfigError: If the package cannot be imported.

    Example:
        >>> require("numpy", "export").__name__
        'numpy'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{extra}: expected the package {package}, got none ({error}; pip install 'torchcaps[{extra}]')"
        ) from None
