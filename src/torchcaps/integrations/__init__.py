"""Bridges to other tools. Each needs its own extra, and only when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.integrations import hub as hub
    from torchcaps.integrations import sklearn as sklearn
    from torchcaps.integrations.exporter import EXPORT_FORMATS, Exported, export
    from torchcaps.integrations.onnx_model import OnnxModel

_NAMES = {
    "EXPORT_FORMATS": "exporter",
    "Exported": "exporter",
    "OnnxModel": "onnx_model",
    "export": "exporter",
}

_MODULES = ("hub", "sklearn")

__all__ = ["EXPORT_FORMATS", "Exported", "OnnxModel", "export"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"torchcaps.integrations.{_NAMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"torchcaps.integrations.{name}")
    raise AttributeError(f"module 'torchcaps.integrations' has no attribute '{name}'")
