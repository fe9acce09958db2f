"""Modules of other packages that register models, routers or data sets, so that recipes and commands know their names.

A plugin is a module that calls `register_model` and the like when it is imported. It is named by an entry point of the
group `torchcaps.plugins`, by the environment variable `TORCHCAPS_IMPORT`, or by `--import` on the command line. Files
such as recipes and run folders cannot name one: nothing is imported because of a file.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Sequence
from importlib import metadata

from torchcaps.errors import ConfigError

GROUP = "torchcaps.plugins"
# Modules separated by commas. Processes that a training starts inherit it.
VARIABLE = "TORCHCAPS_IMPORT"


def load_plugins(modules: Sequence[str] = ()) -> list[str]:
    """Import all plugins: those of installed packages, those of TORCHCAPS_IMPORT, and those that are named.

    Python programs import their own modules themselves; this function is for what other packages declare.

    Args:
        modules: Names of further modules. They are added to TORCHCAPS_IMPORT, for the processes of a training.

    Returns:
        The names of the modules.

    Raises:
        ConfigError: If a module that is named cannot be imported. A plugin of an installed package gives a warning.

    Example:
        >>> load_plugins()
        []
    """
    named = list(dict.fromkeys([*filter(None, os.environ.get(VARIABLE, "").split(",")), *modules]))
    if modules:
        os.environ[VARIABLE] = ",".join(named)
    loaded = []
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: point.name):
        try:
            point.load()
            loaded.append(point.module)
        except Exception as error:
            warnings.warn(f"plugin '{point.name}' is not loaded ({_reason(error)})", stacklevel=2)
    for name in named:
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ConfigError(
                f"import: expected a module that can be imported, got '{name}' ({_reason(error)})"
            ) from error
        loaded.append(name)
    return loaded


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
