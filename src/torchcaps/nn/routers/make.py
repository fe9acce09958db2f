"""Routers by name: how layers, recipes and the command line get one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias

from torchcaps._registry import check_options
from torchcaps.errors import ConfigError
from torchcaps.nn.routers.base import ROUTERS, Router

RoutingSpec: TypeAlias = Router | str | Mapping[str, Any]
"""A router, its name, or a table with its name and options."""


def list_routers(pattern: str = "*") -> list[str]:
    """List the names of the routers.

    Args:
        pattern: Shell pattern that the names match.

    Returns:
        The names in alphabetical order.

    Example:
        >>> list_routers("*routing")
        ['self_routing']
    """
    return ROUTERS.names(pattern)


def make_router(routing: RoutingSpec) -> Router:
    """Make a router from its name or from a table with its name and options.

    Args:
        routing: A router (returned as it is), a name in `ROUTERS`, or `{"name": ..., **options}`.

    Returns:
        The router.

    Raises:
        ConfigError: If an option is unknown or has the wrong type.
        UnknownNameError: If there is no such router.

    Example:
        >>> make_router({"name": "dynamic", "iters": 1})
        DynamicRouting(iters=1, leaky=False, grad='all', squash='standard')
    """
    if isinstance(routing, Router):
        return routing
    if not isinstance(routing, str | Mapping):
        raise ConfigError(f"routing: expected a router, its name, or a table with its name and options, got {routing}")
    options = {"name": routing} if isinstance(routing, str) else dict(routing)
    if "name" not in options:
        raise ConfigError(f"routing: expected a table with the key 'name', got {options}")
    router = ROUTERS[options.pop("name")]
    known = inspect.signature(router).parameters
    check_options(options, known, router.__name__)
    for name, value in options.items():
        _check_kind(name, value, known[name])
    return router(**options)


def _check_kind(name: str, value: object, option: inspect.Parameter) -> None:
    """Raise ConfigError where an option is no boolean or number although its default is one.

    A recipe is text: without this check any word would switch a boolean option on. An option whose annotation is none
    of bool, int and float takes more than its default shows, and is left to the router.
    """
    default, annotation = option.default, option.annotation
    if annotation not in (inspect.Parameter.empty, bool, int, float, "bool", "int", "float"):
        return
    boolean, whole = isinstance(value, bool), isinstance(value, int)
    fits, expected = True, ""
    if isinstance(default, bool):
        fits, expected = boolean, "true or false"
    elif isinstance(default, int):
        fits, expected = whole and not boolean, "a whole number"
    elif isinstance(default, float):
        fits, expected = (whole or isinstance(value, float)) and not boolean, "a number"
    if not fits:
        raise ConfigError(f"{name}: expected {expected}, got {value!r}")
