"""Training: recipes, runs, checkpoints. Lightning is imported when a run starts."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from torchcaps._extras import explain_missing

if TYPE_CHECKING:
    from torchcaps.train._cluster import is_first_process
    from torchcaps.train._runner import fit, resume
    from torchcaps.train.array_recipe import choose_array_recipe
    from torchcaps.train.context import RunContext
    from torchcaps.train.folder_recipe import FolderRecipe, choose_recipe
    from torchcaps.train.loading import Prediction, load_model, load_run, name_predictions, predict_images
    from torchcaps.train.lr_finder import FoundRate, find_lr
    from torchcaps.train.module import CapsModule
    from torchcaps.train.recipe import DEFAULT_RECIPE, Recipe, list_recipes, load_recipe, parse_recipe
    from torchcaps.train.run import Run

_NAMES = {
    "CapsModule": "module",
    "DEFAULT_RECIPE": "recipe",
    "FolderRecipe": "folder_recipe",
    "FoundRate": "lr_finder",
    "Prediction": "loading",
    "Recipe": "recipe",
    "Run": "run",
    "RunContext": "context",
    "choose_array_recipe": "array_recipe",
    "choose_recipe": "folder_recipe",
    "find_lr": "lr_finder",
    "fit": "_runner",
    "is_first_process": "_cluster",
    "list_recipes": "recipe",
    "load_model": "loading",
    "load_recipe": "recipe",
    "load_run": "loading",
    "name_predictions": "loading",
    "parse_recipe": "recipe",
    "predict_images": "loading",
    "resume": "_runner",
}

__all__ = [
    "DEFAULT_RECIPE",
    "CapsModule",
    "FolderRecipe",
    "FoundRate",
    "Prediction",
    "Recipe",
    "Run",
    "RunContext",
    "choose_array_recipe",
    "choose_recipe",
    "find_lr",
    "fit",
    "is_first_process",
    "list_recipes",
    "load_model",
    "load_recipe",
    "load_run",
    "name_predictions",
    "parse_recipe",
    "predict_images",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        with explain_missing():
            return getattr(importlib.import_module(f"torchcaps.train.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps.train' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
