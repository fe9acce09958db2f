"""The Triton kernels in processes of their own: interpreted beside the reference, and compiled for GPUs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsLinear
from torchcaps.ops._triton import device, tiles
from torchcaps.types import Capsules

FOLDER = Path(__file__).parent
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'torchcaps[triton]'"
)
ROUTINGS = ("dynamic", "kmeans", "self_attention", "self_routing", "em")
LAYERS = (*(f"{name}:digit_caps" for name in ROUTINGS), "em:conv_caps", "em:class_caps", "dynamic:conv_caps")


def run_inner(marker: str, *files: str) -> None:
    # Triton reads the variable when it is imported: the tests proper run in a process of their own.
    paths = [str(FOLDER / file) for file in files]
    command = [sys.executable, "-m", "pytest", *paths, "-m", marker, "-p", "no:cacheprovider"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_triton
def test_interpreted_kernels_match_reference() -> None:
    run_inner("not slow", "interpreted_dynamic.py", "interpreted_routings.py")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("file", ["interpreted_dynamic.py", "interpreted_routings.py"])
def test_interpreted_kernels_match_reference_at_all_shapes(file: str) -> None:
    run_inner("slow", file)


def compiled(folder: Path, capabilities: str, *cases: str) -> list[dict[str, Any]]:
    """Compile cases; return what every kernel takes."""
    # Compiling needs no GPU, only a process in which Triton is not the interpreter.
    command = [sys.executable, str(FOLDER / "compiled_routings.py"), capabilities, *cases]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_usage(usages: list[dict[str, Any]]) -> None:
    """No register spills, and at least two programs fit on a multiprocessor of every target."""
    for usage in usages:
        assert usage["spilled"] == 0, usage
        assert usage["shared"] <= 48 * 1024, usage
        assert 2 * usage["warps"] * 32 * usage["registers"] <= 65536, usage


@needs_triton
def test_kernels_compile_without_spills(tmp_path: Path) -> None:
    usages = compiled(tmp_path, "90", "dynamic:digit_caps:float32", "em:class_caps:float32")
    check_usage(usages)
    assert {usage["kernel"] for usage in usages} == {"sum", "pull", "spread"}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_kernels_of_the_papers_layers_compile_without_spills(layer: str, tmp_path: Path) -> None:
    usages = compiled(tmp_path, "80,90,100", f"{layer}:float32", f"{layer}:bfloat16")
    check_usage(usages)
    assert {usage["capability"] for usage in usages} == {80, 90, 100}
    if layer.endswith("conv_caps"):
        assert {usage["kernel"] for usage in usages} == {"sum", "pull", "spread", "norm", "gain"}


@pytest.mark.parametrize("parents", [1, 5, 10, 32, 100, 1000])
@pytest.mark.parametrize("live", sorted(set(tiles.LIVE.values())))
def test_tiles_fit_into_registers(parents: int, live: int) -> None:
    for rows in (1, 128, 5000):
        tile = tiles.accumulate_tiles(rows, parents, 1, 16, live)
        assert tile.parents >= parents
        if tiles.too_large(8, parents, 1, 16) is None:
            assert live * tile.entries / (32 * tile.warps) <= 2 * tiles.REGISTERS
    assert (tiles.too_large(8, parents, 1, 16) is None) == (parents < 1000)


def test_unavailable_names_reason_and_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(device, "_INSTALLED", False)
    assert device.unavailable(CUDA, torch.float32) == "Triton is not installed: pip install 'torchcaps[triton]'"
    monkeypatch.setattr(device, "_INSTALLED", True)
    assert "it takes CUDA tensors, got them on cpu; TRITON_INTERPRET=1" in str(device.unavailable(CPU, torch.float32))
    assert "it takes floating-point tensors, got torch.int64" in str(device.unavailable(CUDA, torch.int64))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.unavailable(CUDA, torch.float32) == "there is no CUDA device; use backend='auto'"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.unavailable(CUDA, torch.bfloat16) is None
    assert "has not run on a GPU" in device.describe()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert device.unavailable(CPU, torch.float32) is None
    assert device.describe() == "interpreted, slow"


@pytest.mark.parametrize("routing", [*ROUTINGS, "attention"])
def test_layer_refuses_triton_on_cpu(routing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    layer = CapsLinear(2, 3, in_dim=4, out_dim=5, routing=routing, backend="triton")
    with raises_about(ConfigError, "backend", "'triton'"):
        layer(Capsules(torch.zeros(1, 2, 4), torch.ones(1, 2)))
