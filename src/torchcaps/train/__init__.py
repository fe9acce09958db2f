"""Training: recipes, runs, checkpoints. Lightning is imported when a run starts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.train._runner import fit, resume
    from torchcaps.train.context import RunContext
    from torchcaps.train.recipe import DEFAULT_RECIPE, Recipe, list_recipes, load_recipe, parse_recipe
    from torchcaps.train.run import Run

_NAMES = {
    "DEFAULT_RECIPE": "recipe",
    "Recipe": "recipe",
    "Run": "run",
    "RunContext": "context",
    "fit": "_runner",
    "list_recipes": "recipe",
    "load_recipe": "recipe",
    "parse_recipe": "recipe",
    "resume": "_runner",
}

__all__ = [
    "DEFAULT_RECIPE",
    "Recipe",
    "Run",
    "RunContext",
    "fit",
    "list_recipes",
    "load_recipe",
    "parse_recipe",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.train.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.train' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
