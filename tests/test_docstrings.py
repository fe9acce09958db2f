"""Docstrings of the public API: every name in `__all__` of every public package."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import torchcaps

TENSORS = re.compile(r"\b(Tensor|Capsules|Routed|Trace)\b")
SECTION = re.compile(r"^(Args|Shape|Returns|Yields|Raises|Attributes|Example|Examples):$", re.MULTILINE)


def public_packages() -> list[str]:
    """Return the packages that export names."""
    names = [
        module.name
        for module in pkgutil.walk_packages(torchcaps.__path__, "torchcaps.")
        if module.ispkg and not any(part.startswith("_") for part in module.name.split("."))
    ]
    # A folder without `__all__` is internal; `torchcaps.ops` and `torchcaps.nn` export what is public in theirs.
    return [name for name in names if name.count(".") == 1 and hasattr(importlib.import_module(name), "__all__")]


def exported(package: str) -> Iterator[tuple[str, Any]]:
    """Classes and functions in `__all__`; constants and registries have no docstring of their own."""
    module = importlib.import_module(package)
    for name in module.__all__:
        item = getattr(module, name)
        if (inspect.isclass(item) or inspect.isfunction(item)) and not _is_alias(item):
            yield name, item


def _is_alias(item: Any) -> bool:
    return not getattr(item, "__module__", "").startswith("torchcaps")


def parameters(item: Any) -> list[inspect.Parameter]:
    if getattr(item, "_is_protocol", False) or getattr(item, "__init__", None) is nn.Module.__init__:
        return []
    try:
        found = inspect.signature(item).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def is_record(item: Any) -> bool:
    """Whether it is a dataclass, named tuple or protocol: functions return it, and Args describes its fields."""
    if not inspect.isclass(item) or issubclass(item, nn.Module):
        return False
    return dataclasses.is_dataclass(item) or hasattr(item, "_fields") or getattr(item, "_is_protocol", False)


def handles_tensors(item: Any) -> bool:
    """Whether tensors are arguments or results; for a module, those of `forward`."""
    if inspect.isclass(item):
        return issubclass(item, nn.Module) and item.forward is not nn.Module.forward
    return bool(TENSORS.search(str(inspect.signature(item))))


def problems(item: Any) -> list[str]:
    """Return what the docstring of a class or function lacks."""
    text = inspect.cleandoc(item.__doc__ or "")
    if not text:
        return ["has no docstring"]
    found = []
    summary = text.partition("\n\n")[0].partition("\n")[0]
    if not summary.endswith((".", "?", ":")) or SECTION.match(summary):
        found.append("the first line is not a sentence")
    sections = set(SECTION.findall(text))
    is_error = inspect.isclass(item) and issubclass(item, Exception)
    if parameters(item) and not is_error and not sections & {"Args", "Attributes"}:
        found.append("no Args")
    if inspect.isfunction(item):
        result = inspect.signature(item).return_annotation
        if result not in (None, "None", inspect.Signature.empty) and not sections & {"Returns", "Yields"}:
            found.append("no Returns")
    if ">>>" not in text and not is_error and not is_record(item):
        found.append("no example")
    if handles_tensors(item) and "Shape" not in sections:
        found.append("no Shape")
    return found


def method_problems(item: Any) -> list[str]:
    """Return what the public methods of a class lack; an overriding method may leave both to the base class."""
    found = []
    bases = [base for base in inspect.getmro(item) if base.__module__.partition(".")[0] != "torch"]
    # The default of a field may be a function.
    fields = {field.name for field in dataclasses.fields(item)} if dataclasses.is_dataclass(item) else set()
    for name, method in vars(item).items():
        function = getattr(method, "__func__", method)
        if name.startswith("_") or not inspect.isfunction(function) or name in fields or name == "extra_repr":
            continue
        texts = [vars(base)[name].__doc__ or "" for base in bases if name in vars(base)]
        if not any(texts):
            found.append(f"{name} has no docstring")
        elif parameters(function) and not any("Args:" in text for text in texts):
            found.append(f"{name} has no Args")
    return found


def gaps(package: str) -> set[str]:
    return {
        f"{package}.{name}: {problem}"
        for name, item in exported(package)
        for problem in [*problems(item), *(method_problems(item) if inspect.isclass(item) else [])]
    }


@pytest.mark.parametrize("package", public_packages())
def test_docstrings_are_complete(package: str) -> None:
    assert sorted(gaps(package)) == []


def test_bad_docstring_is_found() -> None:
    def bare(values: int) -> int:
        """Double a number."""
        return 2 * values

    def good(values: int) -> int:
        """Double a number.

        Args:
            values: A number.

        Returns:
            Twice the number.

        Example:
            >>> 2 * 2
            4
        """
        return 2 * values

    class Layer(nn.Module):
        """Double a tensor.

        Example:
            >>> 2 * 2
            4
        """

        def forward(self, values: Any) -> Any:
            return 2 * values

    assert method_problems(Layer) == ["forward has no docstring"]
    assert problems(bare) == ["no Args", "no Returns", "no example"]
    assert problems(good) == []
    assert "no Shape" in problems(Layer)


SOURCE = Path(torchcaps.__file__).parent


def without_args(folder: Path) -> Iterator[str]:
    """Functions of public modules with three or more arguments whose docstring does not describe them.

    A method without a docstring overrides one that has it, which `method_problems` checks.
    """
    for file in sorted(folder.rglob("*.py")):
        place = file.relative_to(folder)
        if any(part.startswith("_") for part in place.parts if part != "__init__.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Module | ast.ClassDef) or getattr(node, "name", "").startswith("_"):
                continue
            for item in node.body:
                if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) or item.name.startswith("_"):
                    continue
                names = [each.arg for each in (*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs)]
                text = ast.get_docstring(item)
                if text and len([name for name in names if name not in ("self", "cls")]) >= 3 and "Args:" not in text:
                    yield f"{place.as_posix()}: {item.name}"


def test_functions_with_three_arguments_describe_them(tmp_path: Path) -> None:
    assert list(without_args(SOURCE)) == []
    (tmp_path / "a.py").write_text('def f(a, b, *, c):\n    """Add."""\n\n\ndef g(a, b):\n    """Add."""\n')
    assert list(without_args(tmp_path)) == ["a.py: f"]
