"""torchcaps: capsule networks for PyTorch. Everything here is loaded when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps import (
        data,
        diagnostics,
        errors,
        evaluation,
        experiments,
        integrations,
        models,
        nn,
        ops,
        report,
        testing,
        train,
        viz,
    )
    from torchcaps.data import list_data, load_data
    from torchcaps.integrations import export
    from torchcaps.models import create_model, list_models, list_pretrained, pretrained_card, register_model
    from torchcaps.nn import list_routers
    from torchcaps.plugins import load_plugins
    from torchcaps.train import load_model, load_run
    from torchcaps.types import Capsules, Routed, Trace

__version__ = "0.1.0"

_MODULES = (
    "data",
    "diagnostics",
    "errors",
    "evaluation",
    "experiments",
    "integrations",
    "models",
    "nn",
    "ops",
    "report",
    "testing",
    "train",
    "viz",
)
_NAMES = {
    "Capsules": "types",
    "Routed": "types",
    "Trace": "types",
    "create_model": "models",
    "export": "integrations",
    "list_data": "data",
    "list_models": "models",
    "list_pretrained": "models",
    "list_routers": "nn",
    "load_data": "data",
    "load_model": "train",
    "load_plugins": "plugins",
    "load_run": "train",
    "pretrained_card": "models",
    "register_model": "models",
}

__all__ = [
    "Capsules",
    "Routed",
    "Trace",
    "__version__",
    "create_model",
    "data",
    "diagnostics",
    "errors",
    "evaluation",
    "experiments",
    "export",
    "integrations",
    "list_data",
    "list_models",
    "list_pretrained",
    "list_routers",
    "load_data",
    "load_model",
    "load_plugins",
    "load_run",
    "models",
    "nn",
    "ops",
    "pretrained_card",
    "register_model",
    "report",
    "testing",
    "train",
    "viz",
]


def __getattr__(name: str) -> Any:
    from torchcaps._extras import explain_missing

    with explain_missing():
        if name in _MODULES:
            return importlib.import_module(f"torchcaps.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(f"torchcaps.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'torchcaps' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
