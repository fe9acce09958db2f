"""The compiled library: where it lies, what it can serve, and how its functions are called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import torchcaps
from torchcaps.errors import ConfigError

LIBRARY = "_kernels.so"
REMEDY = "install torchcaps again where there is a C++17 compiler (GCC or Clang)"


def load(folders: list[str]) -> tuple[ctypes.CDLL | None, str]:
    """The library and its instruction set, or None and the reason, from the first folder that has it."""
    for folder in folders:
        path = Path(folder) / LIBRARY
        if path.is_file():
            try:
                library = ctypes.CDLL(str(path))
            except OSError as error:
                return None, f"its library does not load: {error}; {REMEDY}"
            library.torchcaps_instruction_set.restype = ctypes.c_char_p
            return library, library.torchcaps_instruction_set().decode()
    return None, f"the CPU kernel was not built; {REMEDY}"


# An editable installation has two folders: the sources, and the one that the build writes to.
_library, _detail = load(list(torchcaps.__path__))
_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
# The type that each type is computed in.
COMPUTED_IN = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def why_missing() -> str | None:
    """None where the library is there, otherwise the reason and the remedy."""
    return _detail if _library is None else None


def why_not(device: torch.device, dtype: torch.dtype) -> str | None:
    """None where the library can serve, otherwise the reason and the remedy."""
    if _library is None:
        return _detail
    if device.type != "cpu":
        return f"it computes on the CPU, got tensors on {device.type}; use backend='auto'"
    if dtype not in COMPUTED_IN:
        return f"it computes floating-point types of 16 to 64 bits, got {dtype}; use backend='reference'"
    return None


def describe() -> str:
    """The instruction set that the kernels use: `avx512`, `avx2` or `portable`."""
    return _detail


def function(name: str, dtype: torch.dtype) -> Any:
    """A function of the library by its name without prefix, for float32 or float64."""
    if _library is None:
        raise ConfigError(f"backend: expected one that is available, got 'cpu' ({_detail})")
    return getattr(_library, f"torchcaps_{name}_{_SUFFIX[dtype]}")


def call(name: str, tensors: Sequence[Tensor | None], sizes: list[int], dtype: torch.dtype) -> None:
    """Hand over the addresses of contiguous tensors, the sizes, and how many threads torch would use."""
    pointers = [ctypes.c_void_p(0 if tensor is None else tensor.data_ptr()) for tensor in tensors]
    if function(name, dtype)(*pointers, (ctypes.c_int64 * len(sizes))(*sizes), torch.get_num_threads()) != 0:
        raise MemoryError(f"{name} of {sizes[0]} samples found no memory for its sums")


def refuse_second_derivative(ctx: Any, *grads: Tensor) -> None:
    """What the gradient of a gradient does: the kernels have first derivatives only."""
    raise ConfigError(
        "backend: expected 'reference' for the gradient of a gradient, got 'cpu' (first derivatives only)"
    )
