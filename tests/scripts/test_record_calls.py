"""The recorder of kernel calls: what it writes, and that the calls can be made again from it."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

import torchcaps
from torchcaps.ops import _native
from torchcaps.ops._attention_pass import steps

REPLAY = Path(__file__).parents[2] / "scripts" / "replay"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPLAY))
    import record_calls

    return record_calls


def lengths(data: bytes) -> list[int]:
    """The numbers of bytes of the tensors of the first call."""
    file = io.BytesIO(data)

    def number() -> int:
        return struct.unpack("<q", file.read(8))[0]

    file.read(number())
    file.read(8 * number())
    found = []
    for _ in range(number()):
        found.append(number())
        file.read(2 * max(found[-1], 0))
    return found


def test_tensors_of_one_memory_are_written_once(recorder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "call", lambda name, tensors, sizes: tensors[0].add_(1))
    shared, other, empty = torch.zeros(3), torch.ones(2), torch.ones(0)
    file = io.BytesIO()
    recorder.Recorder(file)("entry", [shared, other, shared, None, empty, empty], [3])
    assert lengths(file.getvalue()) == [12, 8, -2, -1, 0, 0]


@pytest.mark.slow
def test_recorded_calls_can_be_made_again(recorder: ModuleType, tmp_path: Path) -> None:
    compiler, library = shutil.which("c++"), Path(torchcaps.__path__[0]) / _native.LIBRARY
    if compiler is None or not library.exists():
        pytest.skip("needs a compiler and the kernels")
    with (tmp_path / "calls.bin").open("wb") as file, mock.patch.object(_native, "call", recorder.Recorder(file)):
        # Its share and its result have one memory.
        steps.agreement(torch.randn(2, 3, 8), torch.randn(2, 6, 4), torch.randn(6, 3, 4, 8))
    program = tmp_path / "replay"
    subprocess.run(
        [compiler, "-O1", "-std=c++17", "-pthread", "-o", program, REPLAY / "replay.cpp", "-ldl"], check=True
    )
    done = subprocess.run([program, library, tmp_path / "calls.bin"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 calls, all within" in done.stdout
