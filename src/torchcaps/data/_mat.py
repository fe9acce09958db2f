"""MATLAB's files of version 5 to 7: numbers and structs of numbers, compressed or not.

Each thing in the file is an element: a type, a size, that many bytes. An array is an element made of elements: flags,
sizes, name, values. Nothing in such a file can be run; what this reader does not know it passes over.
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

from torchcaps.data._bounded import CHUNK, Readable, opened, take
from torchcaps.errors import DataError

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _NUMERIC = 2, range(6, 16)
_MOST_AXES, _MOST_FIELDS, _MOST_DEPTH, _MOST_HEAD = 8, 64, 4, 4096


class _DamageError(Exception):
    """What is wrong with the file, to be said together with its name."""


@dataclass
class _Element:
    """The bytes of one element, and how many of them are left."""

    source: Readable
    left: int
    order: str

    def read(self, size: int, /) -> bytes:
        chunk = self.source.read(min(size, self.left))
        self.left -= len(chunk)
        return chunk

    def exactly(self, size: int) -> bytearray:
        if size > self.left:
            raise _DamageError(f"a part of {size:,} bytes where {self.left:,} are left")
        content = take(self, size)
        if len(content) < size:
            raise _DamageError(f"{len(content):,} of {size:,} bytes (truncated)")
        return content

    def skip(self, size: int) -> None:
        while size > 0 and (chunk := self.read(min(size, CHUNK))):
            size -= len(chunk)

    def open_part(self) -> tuple[int, _Element, int]:
        """The type of the next element, its bytes, and how many of padding come after them."""
        kind, size = struct.unpack(f"{self.order}2I", self.exactly(8))
        # Four bytes or fewer may stand inside the tag itself, with their number in the upper half of the type.
        if kind >> 16:
            small = struct.pack(f"{self.order}I", size)
            if kind >> 16 > 4:
                raise _DamageError("a short element of more than four bytes")
            return kind & 0xFFFF, _Element(io.BytesIO(small), kind >> 16, self.order), 0
        if size > self.left:
            raise _DamageError(f"an element of {size:,} bytes where {self.left:,} are left (truncated)")
        return kind, _Element(self, size, self.order), 0 if kind == _COMPRESSED else -size % 8

    def small_part(self, kinds: Collection[int]) -> bytearray:
        """The content of an element of the head, which is never large."""
        kind, part, padding = self.open_part()
        if kind not in kinds or part.left > _MOST_HEAD:
            raise _DamageError(f"an element of type {kind} with {part.left:,} bytes in the head of an array")
        content = part.exactly(part.left)
        self.skip(padding)
        return content


class _Inflated:
    """The unpacked bytes of a compressed element, as they are asked for."""

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
        """Raise unless this is the end: only there the checksum of the packed bytes is compared."""
        if self.read(1) or not self._zlib.eof:
            raise _DamageError("a compressed element of another size than announced")


def read_mat(path: Path, names: Collection[str], most: int) -> dict[str, Any]:
    """The variables of these names, as arrays (a struct as a dict of arrays); no array may be larger than `most` bytes.

    Values keep the type that they are stored in: MATLAB writes whole numbers in as few bytes as they need.
    """
    try:
        with opened(path) as file:
            found = _read_variables(file, names, most)
        for name in names:
            if name not in found:
                raise _DamageError(f"no variable '{name}'")
        return found
    except (_DamageError, UnicodeDecodeError, struct.error) as error:
        raise DataError(
            f"{path}: expected a MATLAB file with {', '.join(names)}, got {error} (damaged, or another file); "
            f"fetch it again"
        ) from None


def _read_variables(file: BinaryIO, names: Collection[str], most: int) -> dict[str, Any]:
    head = take(file, 128)
    order = {b"IM": "<", b"MI": ">"}.get(bytes(head[126:128]))
    if order is None:
        raise _DamageError("no version 5 header")
    if head.startswith(b"MATLAB 7.3"):
        raise _DamageError("version 7.3; save it with -v7")
    found: dict[str, Any] = {}
    while len(tag := take(file, 8)) == 8 and len(found) < len(names):
        kind, size = struct.unpack(f"{order}2I", tag)
        element = _Element(file, size, order)
        inside = _Inflated(element) if kind == _COMPRESSED else None
        content = element
        if inside is not None:
            kind, size = struct.unpack(f"{order}2I", take(inside, 8))
            content = _Element(inside, size, order)
        name, value = _read_array(content, most, names) if kind == _MATRIX else ("", None)
        if name in names and value is not None:
            found[name] = value
            content.skip(content.left)
            if inside is not None:
                inside.finish()
        element.skip(element.left)
    return found


def _read_array(part: _Element, most: int, names: Collection[str] | None, depth: int = 0) -> tuple[str, Any]:
    """Name and value of an array; None for a kind of array that is not read, or a name that is not wanted."""
    if part.left == 0:
        return "", None
    flags = part.small_part((6,))
    if len(flags) != 8:
        raise _DamageError(f"{len(flags)} bytes of flags")
    (word, _) = struct.unpack(f"{part.order}2I", flags)
    kind, is_complex = word & 0xFF, bool(word & 0x800)
    axes = part.small_part((5,))
    if len(axes) % 4:
        raise _DamageError(f"{len(axes)} bytes of sizes")
    sizes = np.frombuffer(axes, f"{part.order}i4").tolist()
    if not 2 <= len(sizes) <= _MOST_AXES or min(sizes) < 0:
        raise _DamageError(f"an array of sizes {sizes}")
    name = part.small_part((1,)).decode()
    if names is not None and name not in names:
        return name, None
    if kind == _STRUCT:
        return name, _read_struct(part, sizes, most, depth)
    if kind not in _NUMERIC or is_complex:
        return name, None
    return name, _read_numbers(part, sizes, most)


def _read_struct(part: _Element, sizes: list[int], most: int, depth: int) -> dict[str, Any]:
    if math.prod(sizes) != 1 or depth >= _MOST_DEPTH:
        raise _DamageError(f"structs of sizes {sizes}, {depth} deep, where one was expected")
    length = int.from_bytes(part.small_part((5,)), "little" if part.order == "<" else "big")
    names = bytes(part.small_part((1,)))
    if not 0 < length <= 64 or len(names) % length or len(names) // length > _MOST_FIELDS:
        raise _DamageError(f"{len(names)} bytes of field names of {length}")
    fields = {}
    for start in range(0, len(names), length):
        field = names[start : start + length].partition(b"\0")[0].decode()
        kind, inner, padding = part.open_part()
        if kind != _MATRIX:
            raise _DamageError(f"an element of type {kind} in the place of the field '{field}'")
        fields[field] = _read_array(inner, most, None, depth + 1)[1]
        part.skip(inner.left + padding)
    return fields


def _read_numbers(part: _Element, sizes: list[int], most: int) -> np.ndarray:
    kind, values, _ = part.open_part()
    if kind not in _NUMBERS:
        raise _DamageError(f"values of type {kind}")
    dtype = np.dtype(f"{part.order}{_NUMBERS[kind]}")
    wanted = math.prod(sizes) * dtype.itemsize
    if wanted != values.left:
        raise _DamageError(f"{values.left:,} bytes for an array of sizes {sizes}, which takes {wanted:,}")
    if wanted > most:
        raise _DamageError(f"an array of {wanted:,} bytes where at most {most:,} were expected")
    return np.frombuffer(values.exactly(wanted), dtype).reshape(sizes, order="F")
