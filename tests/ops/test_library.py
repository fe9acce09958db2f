from pathlib import Path

import pytest
import torch

from torchcaps.errors import ConfigError
from torchcaps.ops import _library
from torchcaps.ops.dynamic import cpu

CPU = torch.device("cpu")


def test_missing_and_broken_libraries_are_told_apart(tmp_path: Path) -> None:
    library, reason = _library.load([str(tmp_path)])
    assert library is None
    assert "was not built; install torchcaps again where there is a C++17 compiler" in reason
    (tmp_path / _library.LIBRARY).write_text("no library")
    library, reason = _library.load([str(tmp_path)])
    assert library is None
    assert "does not load" in reason


def test_reasons_not_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_library", object())
    assert _library.why_not(CPU, torch.float32) is None
    assert "got tensors on cuda" in str(_library.why_not(torch.device("cuda"), torch.float32))
    assert "got torch.int64" in str(_library.why_not(CPU, torch.int64))
    monkeypatch.setattr(_library, "_library", None)
    monkeypatch.setattr(_library, "_detail", "gone")
    assert _library.why_not(CPU, torch.float32) == _library.why_missing() == "gone"
    with pytest.raises(ConfigError, match=r"backend: expected one that is available, got 'cpu' \(gone\)"):
        cpu.route(torch.ones(2, 5, 4), torch.ones(5, 3, 4, 4))


def test_no_memory_is_an_error_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        @staticmethod
        def torchcaps_dynamic_forward_f32(*arguments: object) -> int:
            return 1

    monkeypatch.setattr(_library, "_library", Full())
    with pytest.raises(MemoryError, match="dynamic_forward of 2 samples found no memory"):
        cpu.route(torch.ones(2, 5, 4), torch.ones(5, 3, 4, 4))
