"""Pickles without their power: plain containers and arrays of bytes, and nothing that a file says is ever run.

A pickle is a program. Here its words are read first (`pickletools` parses them without running any) and only those
that build numbers, strings, lists, tuples and dicts are let through; then the one thing that they may call,
numpy's way to put an array together, is played by stand-ins that only keep what they are given.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from torchcaps.data._bounded import take_all
from torchcaps.errors import DataError

_BUILDING = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 STRING BINSTRING SHORT_BINSTRING
UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM
SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL
STACK_GLOBAL REDUCE BUILD
"""
_WORDS = frozenset(_BUILDING.split())
_STORE, _STORE_NEXT, _RECALL = ("PUT", "BINPUT", "LONG_BINPUT"), "MEMOIZE", ("GET", "BINGET", "LONG_BINGET")
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
    """Stands in for an array while it is put together: keeps shape, type and bytes."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_in(self, most: int) -> np.ndarray:
        """The array, if it is one of bytes and whole."""
        _, shape, dtype, is_fortran, content = self.state
        if getattr(dtype, "kind", None) not in (b"u1", "u1") or not isinstance(content, bytes):
            raise TypeError("an array that is not of bytes")
        if not isinstance(shape, tuple) or not all(type(size) is int and 0 < size <= most for size in shape):
            raise TypeError("an array with an impossible shape")
        if math.prod(shape) != len(content):
            raise TypeError(f"an array of {shape} with {len(content)} bytes")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if is_fortran else "C")


class _Dtype:
    """Stands in for the type of an array's numbers: keeps its name."""

    kind: Any = None

    def __setstate__(self, state: Any) -> None:
        pass


class _Called:
    """Stands in for a function or class that a pickle names; `__slots__` leave it nothing to change."""

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
        # What Python 3 writes for bytes in the protocol of Python 2.
        if self._name == "encode" and len(args) == 2 and isinstance(args[0], str) and args[1] in (b"latin1", "latin1"):
            return args[0].encode("latin1")
        raise pickle.UnpicklingError(f"a call of {self._name}")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _NAMES:
            raise pickle.UnpicklingError(f"the name {module}.{name}, which is not allowed")
        return _Called(name)


def read_pickle(path: Path, most: int) -> dict[str, Any]:
    """The dict in a pickle of at most `most` bytes: keys as strings, arrays of bytes as arrays.

    Made for the batches of CIFAR, which Python 2 wrote: its strings arrive as bytes.
    """
    content = bytes(take_all(path, most))
    try:
        _check_words(content)
        found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(found, dict):
            raise TypeError(f"a {type(found).__name__} in the place of a dict")
        plain = {key: value.bytes_in(most) if isinstance(value, _Array) else value for key, value in found.items()}
        return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in plain.items()}
    # Damaged pickles fail in ways too many to list; what is certain is that nothing of theirs has run.
    except Exception as error:
        what = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(
            f"{path}: expected a pickle of arrays and plain containers, got {what} (damaged, or not what it claims to "
            f"be); remove it and fetch it again"
        ) from None


def _check_words(content: bytes) -> None:
    stored: set[int] = set()
    tuples: set[int] = set()
    top_is_tuple = False
    for word, argument, place in pickletools.genops(content):
        name = word.name
        if name not in _WORDS:
            raise pickle.UnpicklingError(f"the instruction {name} at byte {place}, which is not allowed")
        if name in _STORE or name == _STORE_NEXT:
            number = len(stored) if name == _STORE_NEXT else int(argument or 0)
            # The memo is a list as long as its largest number: one number alone could fill all memory.
            if not 0 <= number <= len(content):
                raise pickle.UnpicklingError(f"the memo number {number} at byte {place}")
            stored.add(number)
            if top_is_tuple:
                tuples.add(number)
        # Tuples that hold others many times over would take forever to hash as the key of a dict.
        elif name in _RECALL and int(argument or 0) in tuples:
            raise pickle.UnpicklingError(f"a tuple used twice at byte {place}")
        elif name not in ("PROTO", "FRAME"):
            # After those that change a thing in place, the thing may be a tuple that was left as it was.
            top_is_tuple = "TUPLE" in name or name in _IN_PLACE
