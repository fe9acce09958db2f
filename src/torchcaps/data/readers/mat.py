"""MATLAB files of versions 5 to 7: arrays of numbers and structs of them, compressed or not.

A file is a sequence of elements: type, size, content. An array is an element of elements: flags, sizes, name, values.
Arrays of other types are skipped.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from torchcaps.data.readers._limited_io import CHUNK, Readable, open_unzipped, read_at_most
from torchcaps.errors import DataError

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _NUMERIC = 2, range(6, 16)
_MAX_AXES, _MAX_FIELDS, _MAX_DEPTH, _MAX_HEAD = 8, 64, 4, 4096


class _DamageError(Exception):
    """The reason why a file is rejected; `read_mat` adds its path."""


@dataclass
class _Element:
    """The content of one element, with the number of bytes left."""

    source: Readable
    left: int
    order: str

    def read(self, size: int, /) -> bytes:
        chunk = self.source.read(min(size, self.left))
        self.left -= len(chunk)
        return chunk

    def exactly(self, size: int) -> bytearray:
        if size > self.left:
            raise _DamageError(f"an element of {size:,} bytes with {self.left:,} left")
        content = read_at_most(self, size)
        if len(content) < size:
            raise _DamageError(f"{len(content):,} of {size:,} bytes (truncated)")
        return content

    def skip(self, size: int) -> None:
        while size > 0 and (chunk := self.read(min(size, CHUNK))):
            size -= len(chunk)

    def open_next(self) -> tuple[int, _Element, int]:
        """Return type and content of the next element, and the number of padding bytes after it."""
        kind, size = struct.unpack(f"{self.order}2I", self.exactly(8))
        # Up to four bytes may be element of the tag, with their number in the upper half of the type.
        if kind >> 16:
            small = struct.pack(f"{self.order}I", size)
            if kind >> 16 > 4:
                raise _DamageError("a short element of more than four bytes")
            return kind & 0xFFFF, _Element(io.BytesIO(small), kind >> 16, self.order), 0
        if size > self.left:
            raise _DamageError(f"an element of {size:,} bytes with {self.left:,} left (truncated)")
        return kind, _Element(self, size, self.order), 0 if kind == _COMPRESSED else -size % 8

    def read_small(self, kinds: Collection[int]) -> bytearray:
        """Read an element of the head of an array."""
        kind, element, padding = self.open_next()
        if kind not in kinds or element.left > _MAX_HEAD:
            raise _DamageError(f"an element of type {kind} with {element.left:,} bytes in the head of an array")
        content = element.exactly(element.left)
        self.skip(padding)
        return content


class _Inflated:
    """The content of a compressed element, decompressed as it is read."""

    def __init__(self, packed: Readable) -> None:
        self._packed = packed
        self._zlib = zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        try:
            while not self._zlib.eof:
                chunk = self._zlib.unconsumed_tail or self._packed.read(CHUNK)
                out = self._zlib.decompress(chunk, size)
                if out or not chunk:
                    return out
        except zlib.error as error:
            raise _DamageError(str(error)) from None
        return b""

    def finish(self) -> None:
        """Raise unless this is the end, where zlib compares the checksum."""
        if self.read(1) or not self._zlib.eof:
            raise _DamageError("a compressed element of another size than announced")


def read_mat(path: Path, names: Collection[str], max_bytes: int) -> dict[str, Any]:
    """Read variables by name, as arrays (a struct as a dict of arrays) of at most `max_bytes` each.

    Values keep their stored type: MATLAB stores integers in as few bytes as possible.

    Args:
        path: The file.
        names: Names of the variables.
        max_bytes: Largest number of bytes of a variable.

    Returns:
        The variables by name.
    """
    try:
        with open_unzipped(path) as file:
            found = _read_variables(file, names, max_bytes)
        for name in names:
            if name not in found:
                raise _DamageError(f"no variable '{name}'")
        return found
    except (_DamageError, UnicodeDecodeError, struct.error) as error:
        raise DataError(
            f"{path}: expected a MATLAB file with {', '.join(names)}, got {error}; download it again"
        ) from None


def _read_variables(file: BinaryIO, names: Collection[str], max_bytes: int) -> dict[str, Any]:
    head = read_at_most(file, 128)
    order = {b"IM": "<", b"MI": ">"}.get(bytes(head[126:128]))
    if order is None:
        raise _DamageError("no version 5 header")
    if head.startswith(b"MATLAB 7.3"):
        raise _DamageError("version 7.3; save it with -v7")
    found: dict[str, Any] = {}
    while len(tag := read_at_most(file, 8)) == 8 and len(found) < len(names):
        kind, size = struct.unpack(f"{order}2I", tag)
        element = _Element(file, size, order)
        inside = _Inflated(element) if kind == _COMPRESSED else None
        content = element
        if inside is not None:
            kind, size = struct.unpack(f"{order}2I", read_at_most(inside, 8))
            content = _Element(inside, size, order)
        name, value = _read_array(content, max_bytes, names) if kind == _MATRIX else ("", None)
        if name in names and value is not None:
            found[name] = value
            content.skip(content.left)
            if inside is not None:
                inside.finish()
        element.skip(element.left)
    return found


def _read_array(element: _Element, max_bytes: int, names: Collection[str] | None, depth: int = 0) -> tuple[str, Any]:
    """Return name and value of an array; the value is None for another type, or a name that is not requested."""
    if element.left == 0:
        return "", None
    flags = element.read_small((6,))
    if len(flags) != 8:
        raise _DamageError(f"{len(flags)} bytes of flags")
    (word, _) = struct.unpack(f"{element.order}2I", flags)
    kind, is_complex = word & 0xFF, bool(word & 0x800)
    axes = element.read_small((5,))
    if len(axes) % 4:
        raise _DamageError(f"{len(axes)} bytes of sizes")
    sizes = np.frombuffer(axes, f"{element.order}i4").tolist()
    if not 2 <= len(sizes) <= _MAX_AXES or min(sizes) < 0:
        raise _DamageError(f"an array of sizes {sizes}")
    name = element.read_small((1,)).decode()
    if names is not None and name not in names:
        return name, None
    if kind == _STRUCT:
        return name, _read_struct(element, sizes, max_bytes, depth)
    if kind not in _NUMERIC or is_complex:
        return name, None
    return name, _read_numbers(element, sizes, max_bytes)


def _read_struct(element: _Element, sizes: list[int], max_bytes: int, depth: int) -> dict[str, Any]:
    if math.prod(sizes) != 1 or depth >= _MAX_DEPTH:
        raise _DamageError(f"structs of sizes {sizes}, {depth} deep, expected one")
    length = int.from_bytes(element.read_small((5,)), "little" if element.order == "<" else "big")
    names = bytes(element.read_small((1,)))
    if not 0 < length <= 64 or len(names) % length or len(names) // length > _MAX_FIELDS:
        raise _DamageError(f"{len(names)} bytes of field names of {length}")
    fields = {}
    for start in range(0, len(names), length):
        field = names[start : start + length].partition(b"\0")[0].decode()
        kind, inner, padding = element.open_next()
        if kind != _MATRIX:
            raise _DamageError(f"an element of type {kind} for the field '{field}'")
        fields[field] = _read_array(inner, max_bytes, None, depth + 1)[1]
        element.skip(inner.left + padding)
    return fields


def _read_numbers(element: _Element, sizes: list[int], max_bytes: int) -> np.ndarray:
    kind, values, _ = element.open_next()
    if kind not in _NUMBERS:
        raise _DamageError(f"values of type {kind}")
    dtype = np.dtype(f"{element.order}{_NUMBERS[kind]}")
    size = math.prod(sizes) * dtype.itemsize
    if size != values.left:
        raise _DamageError(f"{values.left:,} bytes for an array of sizes {sizes}, expected {size:,}")
    if size > max_bytes:
        raise _DamageError(f"an array of {size:,} bytes, expected at most {max_bytes:,}")
    return np.frombuffer(values.exactly(size), dtype).reshape(sizes, order="F")
