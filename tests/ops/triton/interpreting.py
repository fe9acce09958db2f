"""Triton's interpreter in less time: few programs, and the language patched once instead of in every nested call."""

# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
from typing import Any

import pytest
import triton.language as tl
from triton.runtime import interpreter

from torchcaps.ops._triton import launch


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two programs do the work, so that each has several children or rows and partial sums are added up."""
    monkeypatch.setattr(launch, "PROGRAMS", 2)


_patched = False


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a device function. The language stays patched after the first one, unlike what a launch patches."""
    global _patched
    if not _patched and any(inspect.ismodule(value) and value is tl.core for value in self.fn.__globals__.values()):
        _patched = True
        interpreter._patch_lang(self.fn)
    return self.rewrite()(*args, **kwargs)


interpreter.InterpretedFunction.__call__ = _call
