"""Restricted pickles: plain containers and arrays of bytes; no code of a file is ever run.

A pickle is a program. `pickletools` parses its instructions first, and only those that build numbers, strings, lists,
tuples and dicts are allowed. The one call that they may contain, numpy's reconstruction of an array, is replaced by
placeholder classes that store the arguments.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.data.readers._limited_io import read_file
from torchcaps.errors import DataError

_ALLOWED = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 STRING BINSTRING SHORT_BINSTRING
UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM
SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL
STACK_GLOBAL REDUCE BUILD
"""
_INSTRUCTIONS = frozenset(_ALLOWED.split())
_STORE, _STORE_NEXT, _RECALL = ("PUT", "BINPUT", "LONG_BINPUT"), "MEMOIZE", ("GET", "BINGET", "LONG_BINGET")
# Objects and memo entries take a hundred times the bytes of a pickle. The largest batch of CIFAR has 250,000 of them.
_MAX_INSTRUCTIONS = 2_000_000
_IN_PLACE = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD")
_NAMES = frozenset(
    (
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
    )
)


class _Array:
    """Placeholder of an array: stores shape, type and bytes."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_in(self, max_bytes: int) -> np.ndarray:
        """Return the array if it is a complete one of bytes."""
        _, shape, dtype, is_fortran, content = self.state
        if getattr(dtype, "kind", None) not in (b"u1", "u1") or not isinstance(content, bytes):
            raise TypeError("an array of another type than bytes")
        if not isinstance(shape, tuple) or not all(type(size) is int and 0 < size <= max_bytes for size in shape):
            raise TypeError("an array with an impossible shape")
        if math.prod(shape) != len(content):
            raise TypeError(f"an array of shape {shape} with {len(content)} bytes")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if is_fortran else "C")


class _Dtype:
    """Placeholder of a dtype: stores its name."""

    kind: Any = None

    def __setstate__(self, state: Any) -> None:
        pass


class _Called:
    """Placeholder of a function or class; `__slots__` leave nothing for a pickle to change."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any) -> Any:
        if self._name == "_reconstruct":
            return _Array()
        if self._name == "dtype" and args:
            kind = _Dtype()
            kind.kind = args[0]
            return kind
        # Python 3 writes bytes like this in the protocol of Python 2.
        if self._name == "encode" and len(args) == 2 and isinstance(args[0], str) and args[1] in (b"latin1", "latin1"):
            return args[0].encode("latin1")
        raise pickle.UnpicklingError(f"a call of {self._name}")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"the forbidden name {module}.{name}")
        return _Called(name)


def read_pickle(path: Path, max_bytes: int) -> dict[str, Any]:
    """Read the dict in a pickle of at most `max_bytes`: keys become strings, arrays of bytes numpy arrays.

    Python 2 wrote the batches of CIFAR; their strings are bytes.
    """
    content = bytes(read_file(path, max_bytes))
    try:
        _check_instructions(content)
        found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(found, dict):
            raise TypeError(f"a {type(found).__name__}, expected a dict")
        plain = {key: value.bytes_in(max_bytes) if isinstance(value, _Array) else value for key, value in found.items()}
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in plain.items()}
    # Damaged pickles raise many kinds of errors; none of their code has run.
    except Exception as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(
            f"{path}: expected a pickle of arrays and plain containers, got {reason}; remove it and download it again"
        ) from None


def _check_instructions(content: bytes) -> None:
    stored: set[int] = set()
    tuples: set[int] = set()
    top_is_tuple = False
    for count, (instruction, argument, place) in enumerate(pickletools.genops(content)):
        name = instruction.name
        if count == _MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"more than {_MAX_INSTRUCTIONS:,} instructions")
        if name not in _INSTRUCTIONS:
            raise pickle.UnpicklingError(f"the forbidden instruction {name} at byte {place}")
        if name in _STORE or name == _STORE_NEXT:
            number = len(stored) if name == _STORE_NEXT else int(argument or 0)
            # The memo is a list as long as its largest number: a single number could exhaust memory.
            if not 0 <= number <= len(content):
                raise pickle.UnpicklingError(f"the memo number {number} at byte {place}")
            stored.add(number)
            if top_is_tuple:
                tuples.add(number)
        # Tuples that contain others many times would take forever to hash as the key of a dict.
        elif name in _RECALL and int(argument or 0) in tuples:
            raise pickle.UnpicklingError(f"a tuple used twice at byte {place}")
        elif name not in ("PROTO", "FRAME"):
            # An instruction that changes an object in place may leave a tuple on top.
            top_is_tuple = "TUPLE" in name or name in _IN_PLACE
