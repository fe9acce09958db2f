"""Writers of the file formats of data sets, for tests of the readers.

They share no code with the readers; tests compare them with numpy, scipy and pickle.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

_MAT_TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}
_MAT_CLASSES = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12, "u4": 13, "i8": 14, "u8": 15}


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    """Random bytes of this shape."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    """An idx file of bytes."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def norb(array: np.ndarray) -> bytes:
    """One of NORB's binary matrices; at least three sizes are written."""
    magic = {"u1": 0x1E3D4C55, "i4": 0x1E3D4C54}[array.dtype.str[1:]]
    sizes = [*array.shape, 1, 1][: max(3, array.ndim)]
    return struct.pack(f"<{2 + len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes()


def cifar_binary(images: np.ndarray, *labels: list[int]) -> bytes:
    """A binary batch of CIFAR: images [N, 3, 32, 32] behind one byte of each kind of label."""
    rows = zip(*labels, images, strict=True)
    return b"".join(bytes(numbers) + image.tobytes() for *numbers, image in rows)


def python2_batch(images: np.ndarray, labels: Mapping[str, list[int]]) -> bytes:
    """A batch of CIFAR as Python 2 with its numpy wrote it: protocol 2, strings as bytes, pixels [N, 3072]."""
    rows = images.reshape(len(images), -1)

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value

    def numbers(values: list[int]) -> bytes:
        return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff"
    dtype += b"K\x00tb"
    shape = b"".join(b"J" + struct.pack("<i", size) for size in rows.shape) + b"\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
    array += b"(K\x01" + shape + dtype + b"\x89" + text(rows.tobytes()) + b"tb"
    entries = text(b"data") + array + text(b"batch_label") + text(b"training batch 1 of 5")
    entries += b"".join(text(name.encode()) + numbers(values) for name, values in labels.items())
    names = b"".join(text(b"picture_%d.png" % number) for number in range(len(rows)))
    return b"\x80\x02}q\x02(" + entries + text(b"filenames") + b"](" + names + b"eu."


def mat(variables: Mapping[str, Any], *, packed: bool = True, order: str = "<") -> bytes:
    """A MATLAB file of version 5: arrays, structs (dicts) and texts."""
    head = b"MATLAB 5.0 MAT-file, made for a test".ljust(124) + struct.pack(f"{order}H", 0x0100)
    body = b""
    for name, value in variables.items():
        element = _matrix(name, value, order)
        if packed:
            element = zlib.compress(element)
            element = struct.pack(f"{order}2I", 15, len(element)) + element
        body += element
    return head + (b"IM" if order == "<" else b"MI") + body


def _element(kind: int, content: bytes, order: str) -> bytes:
    if 0 < len(content) <= 4:
        return struct.pack(f"{order}I", len(content) << 16 | kind) + content.ljust(4, b"\0")
    return struct.pack(f"{order}2I", kind, len(content)) + content + bytes(-len(content) % 8)


def _matrix(name: str, value: Any, order: str) -> bytes:
    if isinstance(value, dict):
        number, sizes = 2, (1, 1)
        length = 32
        names = b"".join(field.encode().ljust(length, b"\0") for field in value)
        content = _element(5, struct.pack(f"{order}i", length), order) + _element(1, names, order)
        content += b"".join(_matrix("", field, order) for field in value.values())
    elif isinstance(value, str):
        number, sizes = 4, (1, len(value))
        content = _element(4, value.encode("utf-16-be" if order == ">" else "utf-16-le"), order)
    else:
        code = value.dtype.str[1:]
        number, sizes = _MAT_CLASSES[code], value.shape
        content = _element(_MAT_TYPES[code], value.astype(f"{order}{code}").tobytes(order="F"), order)
    flags = struct.pack(f"{order}2I", number, 0)
    axes = struct.pack(f"{order}{len(sizes)}i", *sizes)
    content = _element(6, flags, order) + _element(5, axes, order) + _element(1, name.encode(), order) + content
    return struct.pack(f"{order}2I", 14, len(content)) + content


def zip_of(members: Mapping[str, bytes]) -> bytes:
    """A zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as box:
        for name, content in members.items():
            box.writestr(name, content)
    return file.getvalue()


def tar_of(members: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """A gzipped tar file; a TarInfo in the place of contents is entered as it is."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """An npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(array: np.ndarray) -> bytes:
    """A packed npz file with one array."""
    file = io.BytesIO()
    np.savez_compressed(file, array)
    return file.getvalue()


def picture(array: np.ndarray, kind: str = "PNG") -> bytes:
    """A picture file of [H, W] or [H, W, 3]."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, kind)
    return file.getvalue()


def tiled_tiff(width: int, height: int, side: int) -> bytes:
    """A grey TIFF file of empty, compressed tiles of a side."""
    tile = zlib.compress(bytes(min(side * side, 4096)))
    tags = ((256, width), (257, height), (258, 8), (259, 8), (262, 1), (277, 1), (322, side), (323, side))
    place = 8 + 2 + 12 * (len(tags) + 2) + 4
    entries = (*tags, (324, place), (325, len(tile)))
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + table + bytes(4) + tile


def jpeg2000(side: int, precinct: int | None = None, **options: Any) -> bytes:
    """A JPEG 2000 file that announces a square; `precinct` is the byte of its only precinct, such as 0x88."""
    content = io.BytesIO()
    sizes = {} if precinct is None else {"num_resolutions": 1, "precinct_size": (256, 256), **options}
    Image.new("RGB", (64, 64)).save(content, "JPEG2000", **sizes)
    data = bytearray(content.getvalue())
    size, style = data.index(b"\xff\x51"), data.index(b"\xff\x52")
    for place in (6, 22):
        struct.pack_into(">II", data, size + place, side, side)
    if precinct is not None:
        data[style + 14] = precinct
    return bytes(data)


def signal_file(lengths: Sequence[int] = (6, 6, 5, 4, 6, 6), channels: int = 2, header: str = "") -> bytes:
    """A .ts file with signals of two classes, `low` and `high`, in turn."""
    rows = [
        f"@problemName made{header}",
        "@timeStamps false",
        "@univariate false",
        "@classLabel true low high",
        "@data",
    ]
    for number, length in enumerate(lengths):
        values = (pixels(channels, length, seed=number) / 64 + 9 * (number % 2)).tolist()
        row = [",".join(f"{value:.3f}" for value in channel) for channel in values]
        rows.append(":".join([*row, ("low", "high")[number % 2]]))
    return "\n".join(rows).encode()


def array_file(images: np.ndarray, **others: np.ndarray) -> bytes:
    """An .npz file with samples `x` of three classes in turn, and other arrays."""
    content = io.BytesIO()
    np.savez(content, **{"x": images, "y": np.arange(len(images)) % 3, **others})
    return content.getvalue()
