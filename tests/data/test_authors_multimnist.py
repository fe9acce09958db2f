"""The generator against the ten records of MultiMNIST in the released code of Sabour et al. 2017."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcaps.data import InMemoryDataset, multimnist
from torchcaps.data.multimnist import SHIFT, OverlappingDigits

SIDE = 36


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def messages(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and content of each field of a protocol buffer."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        else:
            size, at = varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size


def content(value: bytes | int) -> bytes:
    assert isinstance(value, bytes)
    return value


def example(record: bytes) -> dict[str, bytes]:
    """Return the first value of each feature of a tf.train.Example; integers are encoded varints."""
    found = {}
    ((_, features),) = messages(record)
    for _, entry in messages(content(features)):
        fields = dict(messages(content(entry)))
        ((_, values),) = messages(content(fields[2]))
        _, first = next(messages(content(values)))
        found[content(fields[1]).decode()] = first if isinstance(first, bytes) else bytes([first])
    return found


def records(file: Path) -> Iterator[bytes]:
    data, at = file.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += 16 + size


@pytest.fixture(scope="module")
def authors() -> list[dict[str, np.ndarray]]:
    folder = Path(os.environ.get("TORCHCAPS_DATA", "none")) / "capsules_testdata"
    files = sorted(folder.rglob("multi*_4shifted_mnist.tfrecords-*"))
    if not files:
        pytest.skip("needs the records of the authors in TORCHCAPS_DATA/capsules_testdata")
    table = [example(record) for file in files for record in records(file)]
    return [{name: np.frombuffer(value, np.uint8) for name, value in each.items()} for each in table]


def corner(canvas: np.ndarray) -> tuple[int, int]:
    """Return a corner from 0 to 8 of a window of 28x28 that holds all of a digit."""
    for top in range(2 * SHIFT + 1):
        for left in range(2 * SHIFT + 1):
            if canvas[top : top + 28, left : left + 28].sum() == canvas.sum():
                return top, left
    raise AssertionError("the digit is larger than 28x28 or shifted by more than 4 pixels")


def test_all_ten_records(authors: list[dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(authors) == 10
    for each in authors:
        first, second, merged = (
            each[name].reshape(SIDE, SIDE).astype(int) for name in ("image_raw_1", "image_raw_2", "merged_raw")
        )
        labels = [int(each[name][0]) for name in ("label_1", "label_2")]
        assert labels[0] != labels[1]
        corners = [corner(canvas) for canvas in (first, second)]
        digits = np.stack(
            [canvas[t : t + 28, x : x + 28] for canvas, (t, x) in zip((first, second), corners, strict=True)]
        )
        # The random numbers with which the generator places the two digits where the authors did.
        row = [0.5, *((place + 0.5) / (2 * SHIFT + 1) for both in corners for place in both)]
        monkeypatch.setattr(multimnist, "uniforms", lambda *_, row=row: np.array([row]))
        data = InMemoryDataset.from_arrays(
            digits.astype(np.uint8), np.array(labels), class_names=[str(k) for k in range(10)]
        )
        batch = OverlappingDigits(data, 1, 0)(torch.tensor([0]))
        assert np.array_equal(batch.images[0, 0], merged)
        assert np.array_equal(batch.images[0, 0], np.minimum(first + second, 255))
        assert batch.labels[0].tolist() == labels
        assert batch.sources is not None
        assert np.array_equal(batch.sources[0, :, 0], np.stack([first, second]))
