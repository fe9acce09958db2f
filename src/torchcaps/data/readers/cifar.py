"""The batches of CIFAR-10 and CIFAR-100, in the binary and in the Python form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.readers._limited_io import read_file
from torchcaps.data.readers.pickles import read_pickle
from torchcaps.errors import DataError

_PIXELS = 3 * 32 * 32
# Size of the largest batch: the training images of CIFAR-100 with two labels each.
MAX_BATCH = 50_000 * (_PIXELS + 2)


def read_binary(path: Path, names: tuple[str, ...]) -> tuple[Tensor, dict[str, Tensor]]:
    """Read images [N, 3, 32, 32] and labels of a binary batch; `names` are the labels in front of each image."""
    content, record = read_file(path, MAX_BATCH), _PIXELS + len(names)
    if not content or len(content) % record:
        raise DataError(
            f"{path}: expected records of {record} bytes, got {len(content):,} bytes (truncated or damaged); "
            f"download it again"
        )
    rows = torch.frombuffer(content, dtype=torch.uint8).view(-1, record)  # [N, record]
    labels = {name: rows[:, place].to(torch.int64) for place, name in enumerate(names)}
    return rows[:, len(names) :].reshape(-1, 3, 32, 32), labels


def read_python(path: Path, names: tuple[str, ...]) -> tuple[Tensor, dict[str, Tensor]]:
    """Read images [N, 3, 32, 32] and labels of a Python batch; `names` are the keys of its lists of labels."""
    batch = read_pickle(path, 2 * MAX_BATCH)
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise DataError(
            f"{path}: expected 'data', an array of {_PIXELS} bytes per image, but it is missing; download it again"
        )
    labels = {}
    for name in names:
        values = batch.get(name)
        if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 256 for value in values):
            raise DataError(f"{path}: expected '{name}', a list of class indices, but it is missing; download it again")
        if len(values) != len(pixels):
            raise DataError(
                f"{path}: expected {len(pixels)} {name}, one per image, got {len(values)}; download it again"
            )
        labels[name] = torch.tensor(values, dtype=torch.int64)  # [N]
    return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy()), labels
