import ctypes
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcaps
from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.ops import _native
from torchcaps.ops.dynamic import cpu

CPU = torch.device("cpu")
missing = _native.missing_reason()
needs_memory_limit = pytest.mark.skipif(
    not Path("/proc/self/statm").exists() or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="the limit is set from the size in /proc; AddressSanitizer reserves more than any limit",
)
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def compile_library(folder: Path, source: str) -> None:
    (folder / "library.cpp").write_text(source)
    command = ["c++", "-shared", "-fPIC", "-o", str(folder / _native.LIBRARY), str(folder / "library.cpp")]
    subprocess.run(command, check=True)


def test_missing_library(tmp_path: Path) -> None:
    library, reason = _native.load([str(tmp_path)])
    assert library is None
    assert "not built" in reason
    assert "C++17 compiler" in reason


def test_broken_library(tmp_path: Path) -> None:
    (tmp_path / _native.LIBRARY).write_text("not a library")
    library, reason = _native.load([str(tmp_path)])
    assert library is None
    assert "does not load" in reason


@needs_kernel
@pytest.mark.parametrize(
    ("source", "version"),
    [
        ('extern "C" const char* torchcaps_instruction_set() { return "avx2"; }', 1),
        ('extern "C" int torchcaps_abi_version() { return 99; }', 99),
    ],
)
def test_stale_library_is_not_used(tmp_path: Path, source: str, version: int) -> None:
    compile_library(tmp_path, source)
    library, reason = _native.load([str(tmp_path)])
    assert library is None
    assert f"expected ABI version {_native.ABI_VERSION}, got {version}" in reason


def test_unavailable_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_library", object())
    assert _native.unavailable(CPU, torch.float32) is None
    assert "got tensors on cuda" in str(_native.unavailable(torch.device("cuda"), torch.float32))
    assert "got torch.int64" in str(_native.unavailable(CPU, torch.int64))
    monkeypatch.setattr(_native, "_library", None)
    monkeypatch.setattr(_native, "_detail", "gone")
    assert _native.unavailable(CPU, torch.float32) == _native.missing_reason() == "gone"
    with raises_about(ConfigError, "backend", "cpu"):
        cpu.compute(torch.ones(2, 5, 4), torch.ones(5, 3, 4, 4), None, 3, False, False)


@needs_kernel
def test_wrong_number_of_arguments_is_refused() -> None:
    out = torch.full((3,), 7.0)
    with pytest.raises(RuntimeError, match=r"dynamic_forward: .* got 1 and 10"):
        _native.call("dynamic_forward", [out], [1] * 10)
    with pytest.raises(RuntimeError, match=r"weighted_sum_backward: .* got 7 and 6"):
        _native.call("weighted_sum_backward", [out] * 7, [1] * 6)
    with pytest.raises(RuntimeError, match="at least 0"):
        _native.call("dynamic_forward", [out] * 5, [1] * 9 + [-1])
    assert out.tolist() == [7.0] * 3


@needs_kernel
def test_exceptions_become_errors_with_a_message() -> None:
    tensors = [torch.ones(1) for _ in range(5)]
    with pytest.raises(RuntimeError, match=r"dynamic_forward: .*squash"):
        _native.call("dynamic_forward", tensors, [1, 1, 1, 1, 1, 3, 0, 0, 0, 17])


# A shared weight and many parents: the workspace is sixteen times as large as the result.
OUT_OF_MEMORY = """
import resource, torch
from torchcaps.ops._attention_pass.cpu import attend
torch.set_num_threads({threads})
poses, weight = torch.ones(64, 256, 1), torch.ones(100_000, 1, 1)
attend(poses[:1, :16], weight[:10])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, resource.RLIM_INFINITY))
try:
    attend(poses, weight)
except MemoryError as error:
    print("caught", error)
"""


@needs_kernel
@needs_memory_limit
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_out_of_memory_is_a_memory_error(threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY.format(threads=threads)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "caught attention_pass_forward: out of memory\n", done.stderr[-2000:]


# No stack for another thread fits under the limit, so that starting threads fails in the middle of a call.
NO_THREADS = """
import resource, threading, torch
from torchcaps.ops.dynamic import cpu
torch.set_num_threads(1)
poses, weight = torch.ones(64, 300, 8), torch.ones(300, 4, 8, 16)
expected = cpu.compute(poses, weight, None, 3, False, False)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
torch.set_num_threads(8)
resource.setrlimit(resource.RLIMIT_AS, (used + 6 * 2**20, resource.RLIM_INFINITY))
print(torch.equal(cpu.compute(poses, weight, None, 3, False, False), expected))
"""


@needs_kernel
@needs_memory_limit
def test_fewer_threads_than_requested_compute_the_same() -> None:
    assert resource.getrlimit(resource.RLIMIT_STACK)[0] > 6 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", NO_THREADS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr[-2000:]


@needs_kernel
@pytest.mark.parametrize("kernel", ["dynamic", "attention_pass", "weighted_sum", "em"])
def test_entries_have_argument_types(kernel: str) -> None:
    library, _ = _native.load(list(torchcaps.__path__))
    assert library is not None
    for entry in (f"torchcaps_{kernel}_forward_f32", f"torchcaps_{kernel}_backward_f64"):
        function = _native._entry(library, entry)
        assert function.restype is ctypes.c_int
        assert len(function.argtypes) == 7


@needs_kernel
def test_unknown_entry_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'torchcaps_unknown_forward_f32'"):
        _native.call("unknown_forward", [torch.zeros(1)], [1])
