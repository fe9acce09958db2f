"""Every registered operator, and every router and backend, with extreme sizes, strides, types, lists and numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.ops import _native

from .extreme_calls import layer_calls, operator_names, record_operators

missing = _native.missing_reason()
pytestmark = [
    pytest.mark.skipif(missing is not None, reason=str(missing)),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set from the size in /proc"),
]
# AddressSanitizer refuses large allocations by itself.
SANITIZER = "allocator_may_return_null=1:max_allocation_size_mb=256"


def run(*words: object) -> None:
    """A crash must not end the tests: the last line of the output names the call."""
    options = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), SANITIZER]))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("extreme_calls.py"), *map(str, words)],
        env={**os.environ, "ASAN_OPTIONS": options, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND")]
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"exit code {done.returncode}: {found or last} {done.stderr[-2000:]}"


def test_every_operator() -> None:
    run("--calls", 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", operator_names())
def test_operator_with_many_calls(name: str) -> None:
    run(name, "--calls", 2000, "--seed", 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, _ in layer_calls()}))
def test_routing(name: str) -> None:
    run(name, "--calls", 100)


def test_layers_reach_every_operator() -> None:
    # Those of a GPU are called with arguments of their schema instead.
    unreached = set(operator_names()) - set(record_operators())
    assert {name for name in unreached if "triton" not in name} == set()
