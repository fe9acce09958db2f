from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsLinear
from torchcaps.ops.dynamic import triton
from torchcaps.types import Capsules

INNER = Path(__file__).with_name("interpreted_triton.py")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'torchcaps[triton]'"
)


def run_inner(marker: str) -> None:
    # Triton reads the variable when it is imported: the tests proper run in a process of their own.
    command = [sys.executable, "-m", "pytest", str(INNER), "-m", marker, "-p", "no:cacheprovider"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_triton
def test_interpreted_kernels_match_reference():
    run_inner("not slow")


@needs_triton
@pytest.mark.slow
def test_interpreted_kernels_match_reference_at_all_shapes():
    run_inner("slow")


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_for_gpu(capability, tmp_path):
    # Compiling needs no GPU, only a process in which Triton is not the interpreter.
    command = [sys.executable, str(INNER.with_name("compiled_triton.py")), str(capability)]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("compiled") == 12


def test_unavailable_names_reason_and_remedy(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert triton.unavailable(CUDA, torch.float32) == "Triton is not installed: pip install 'torchcaps[triton]'"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert "it takes CUDA tensors, got them on cpu; TRITON_INTERPRET=1" in str(triton.unavailable(CPU, torch.float32))
    assert "it takes floating-point tensors, got torch.int64" in str(triton.unavailable(CUDA, torch.int64))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert triton.unavailable(CUDA, torch.float32) == "there is no CUDA device; use backend='auto'"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert triton.unavailable(CUDA, torch.bfloat16) is None
    assert "has not run on a GPU" in triton.describe()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert triton.unavailable(CPU, torch.float32) is None
    assert triton.describe() == "interpreted, slow"


def test_layer_refuses_triton_on_cpu(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    layer = CapsLinear(2, 3, in_dim=4, out_dim=5, backend="triton")
    with raises_about(ConfigError, "backend", "'triton'"):
        layer(Capsules(torch.zeros(1, 2, 4), torch.ones(1, 2)))
