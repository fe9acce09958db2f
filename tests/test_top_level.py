from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import torchcaps
from fresh import run_fresh

HEAVY = ("torch", "numpy", "lightning", "matplotlib", "rich")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LOADED = f"\nimport sys\nprint(*[name for name in {HEAVY} if name in sys.modules])"


def loaded_after(code: str) -> list[str]:
    return run(code + LOADED).split()


def test_import_is_light() -> None:
    assert loaded_after("import torchcaps; torchcaps.__version__; dir(torchcaps)") == []


def test_errors_and_registry_imports_are_light() -> None:
    assert loaded_after("import torchcaps; torchcaps.errors.ShapeError; import torchcaps._registry") == []


def test_check_finds_loaded_modules() -> None:
    assert loaded_after("import numpy") == ["numpy"]


@pytest.mark.parametrize("module", ["ops", "nn", "models"])
def test_core_imports_neither_lightning_nor_matplotlib(module: str) -> None:
    assert run_fresh(f"import torchcaps; torchcaps.{module}{LOADED}").stdout.split() == ["torch", "numpy"]


def test_public_names_exist() -> None:
    for name in torchcaps.__all__:
        assert getattr(torchcaps, name) is not None


def test_dir_lists_public_names() -> None:
    assert dir(torchcaps) == sorted(torchcaps.__all__)


def test_names_match_their_modules() -> None:
    assert torchcaps.create_model is importlib.import_module("torchcaps.models").create_model
    assert torchcaps.Capsules is importlib.import_module("torchcaps.types").Capsules
    assert torchcaps.nn is importlib.import_module("torchcaps.nn")


def test_unknown_name_is_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'torchcaps' has no attribute 'capsnett'$"):
        _ = torchcaps.capsnett  # pyright: ignore[reportAttributeAccessIssue]
    assert not hasattr(torchcaps, "nothing")


@pytest.mark.parametrize(
    "package", [name for name in torchcaps.__all__ if hasattr(getattr(torchcaps, name), "__path__")]
)
def test_packages_have_their_public_names(package: str) -> None:
    module = importlib.import_module(f"torchcaps.{package}")
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name)
