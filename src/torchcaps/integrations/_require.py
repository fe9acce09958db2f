"""Imports of optional packages, with one sentence where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from torchcaps._extras import missing_package


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package.

    Args:
        package: Name of the module.
        extra: Extra of torchcaps that installs it.

    Returns:
        The module.

    Raises:
        MissingPackageError: If the package is not installed.

    Example:
        >>> require("numpy", "export").__name__
        'numpy'
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise missing_package(package, extra) from None
