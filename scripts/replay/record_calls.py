"""Pytest plugin that records the kernel calls of the tests it runs with, for `replay.cpp` on another processor.

    PYTHONPATH=scripts/replay TORCHCAPS_CALLS=calls.bin pytest -p record_calls tests/ops/em/test_cpu.py

A record is the name of the entry, its sizes, and every tensor before and after the call. All numbers are little-endian
int64: length of the name, name, number of sizes, sizes, number of tensors, and for each tensor its bytes (-1 for a null
pointer, -2 - k for the memory of tensor k), its content before and its content after.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from torch import Tensor

from torchcaps.ops import _native

# Calls with equal sizes add nothing after the second, and large ones take long under an emulator.
SAME_SIZES = 2
MAX_BYTES = 400_000
SUFFIX = {4: "f32", 8: "f64"}


class Recorder:
    """Call that writes what it was given and what came out of it."""

    def __init__(self, file: BinaryIO, max_bytes: int = MAX_BYTES) -> None:
        self.file = file
        self.max_bytes = max_bytes
        self.call = _native.call
        self.seen: Counter[tuple[str, ...]] = Counter()

    def __call__(self, name: str, tensors: Sequence[Tensor | None], sizes: Sequence[int]) -> None:
        given = [tensor for tensor in tensors if tensor is not None]
        entry = f"torchcaps_{name}_{SUFFIX[given[0].element_size()]}"
        key = (entry, *map(str, sizes))
        self.seen[key] += 1
        small = sum(tensor.nbytes for tensor in given) <= self.max_bytes
        before = [None if tensor is None else _content(tensor) for tensor in tensors] if small else []
        self.call(name, tensors, sizes)
        if not small or self.seen[key] > SAME_SIZES:
            return
        self.file.write(_numbers(len(entry)) + entry.encode() + _numbers(len(sizes), *sizes) + _numbers(len(tensors)))
        places = [
            None if tensor is None or not tensor.numel() else (tensor.data_ptr(), tensor.nbytes) for tensor in tensors
        ]
        for k, (content, tensor) in enumerate(zip(before, tensors, strict=True)):
            first = k if places[k] is None else places.index(places[k])
            if content is None or tensor is None or first < k:
                self.file.write(_numbers(-1 if tensor is None else -2 - first))
            else:
                self.file.write(_numbers(len(content)) + content + _content(tensor))


def _content(tensor: Tensor) -> bytes:
    return tensor.detach().numpy().tobytes()


def _numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


@pytest.fixture(autouse=True, scope="session")
def record_calls():
    """Replace the call of the kernels while the tests run."""
    with Path(os.environ["TORCHCAPS_CALLS"]).open("wb") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_native, "call", Recorder(file))
        yield
