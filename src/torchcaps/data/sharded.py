"""Images in sharded tar archives, for data sets that do not fit in memory; `torchcaps data make shards` writes them.

The layout is that of webdataset: the members `00000042.png` and `00000042.cls` are one image and its class index.
`index.json` beside the shards holds class names, image shape, and for each split its shards with counts and sizes. The
headers of a shard give the offset of each image, so that images can be read in any order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._order import Order
from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.shard_files import INDEX, Shard, read_index, read_member, read_table
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.data.transforms import crop
from torchcaps.errors import ConfigError, DataError


class ShardedDataset(ImageDataset):
    """One split of a sharded data set; images are read from the archives when they are needed.

    A shuffled pass takes the shards in random order and shuffles within windows of `buffer` images, so that few shards
    are read at a time.

    Args:
        name: Name of the data set.
        split: Name of the split.
        class_names: Name of each class, in the order of the class indices.
        shards: Archives of the split, in order.
        image_shape: Channels, height and width of every image.
        buffer: Number of images in a shuffling window.

    Example:
        >>> load_shards("train", "my/shards").in_memory  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: Sequence[str],
        shards: Sequence[Shard],
        image_shape: tuple[int, int, int],
        buffer: int,
    ) -> None:
        super().__init__(name, split, class_names, str(shards[0].path.parent) if shards else name)
        self._shards = shards
        self._shape = image_shape
        self._buffer = buffer
        self._crop: int | None = None
        # Index of the first image of each shard, and the total, [S + 1].
        self._starts = np.cumsum([0, *(shard.count for shard in shards)])
        self._tables: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        return self._shape if self._crop is None else (self._shape[0], self._crop, self._crop)

    @property
    def labels(self) -> Tensor:
        """Class indices of all images, int64 [N]; the first access reads the headers of every shard."""
        return self._labels

    @cached_property
    def _labels(self) -> Tensor:
        tables = [self._table(number)[:, 2] for number in range(len(self._shards))]
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *tables]))

    @property
    def meta(self) -> dict[str, Tensor]:
        """Empty: shards hold images and labels."""
        return {}

    def read(self, indices: Tensor) -> Batch:
        """Return the images at these indices, int64 [n] in 0 to N - 1, in this order."""
        numbers = indices.numpy()  # [n]
        shards = np.searchsorted(self._starts, numbers, side="right") - 1  # [n]
        rows = [self._table(shard)[number - self._starts[shard]] for shard, number in zip(shards, numbers, strict=True)]
        # An array: other threads cannot fill a tensor that was made in inference mode.
        pixels = np.empty((len(numbers), *self._shape), np.uint8)  # [n, C, H, W]

        def fill(item: int) -> None:
            offset, size = rows[item][:2].tolist()
            pixels[item] = read_member(self._shards[shards[item]].path, offset, size, self._shape)

        # Pillow releases the interpreter lock while it decodes.
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, range(len(numbers))))
        images = torch.from_numpy(pixels)
        labels = torch.tensor([int(row[2]) for row in rows], dtype=torch.int64)
        return Batch(images if self._crop is None else crop(images, self._crop), labels, None, {})

    def select(self, indices: Tensor) -> InMemoryDataset:
        """Read the images at these indices, int64 [n] in 0 to N - 1, into memory."""
        chosen = self.read(indices)
        data = InMemoryDataset(self.name, self.split, chosen.images, chosen.labels, self.class_names, self.origin)
        return data.with_transform(self.transform)

    def cropped(self, size: int) -> Self:
        """Return the data set with every image cropped to its centre, size x size."""
        crop(torch.empty(1, *self.image_shape), size)
        return self._copied(_crop=size)

    def shuffled_order(self, seed: int) -> Order:
        """Return the order of one shuffled pass, a function of the seed and of `buffer`."""
        return partial(self._shuffled, seed)

    def _shuffled(self, seed: int, start: int, stop: int) -> Tensor:
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        order = rng.permutation(len(self._shards))
        counts = np.diff(self._starts)[order]
        ends = np.cumsum(counts)
        chunks = []
        for window in range(start // self._buffer, -(-stop // self._buffer)):
            low, high = window * self._buffer, min((window + 1) * self._buffer, len(self))
            stream = np.arange(low, high)
            # Position in `order` of the shard that holds each image.
            turn = np.searchsorted(ends, stream, side="right")
            numbers = self._starts[order[turn]] + stream - (ends - counts)[turn]
            mixed = np.random.default_rng(np.random.SeedSequence((seed, window))).permutation(numbers)
            chunks.append(mixed[max(start, low) - low : min(stop, high) - low])
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *chunks]))

    def _table(self, number: int) -> np.ndarray:
        """Return offset, size and label of each image of a shard, [n, 3]."""
        if number not in self._tables:
            self._tables[number] = read_table(self._shards[number], len(self.class_names))
        return self._tables[number]


def load_shards(split: str, path: str | Path, *, buffer: int = 8192) -> ShardedDataset:
    """Load one split of the shards in a folder, as written by `torchcaps data make shards`.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        path: Folder of the shards.
        buffer: Number of images in a shuffling window, beside the random order of the shards.

    Returns:
        A data set that reads its images from the shards.

    Raises:
        ConfigError: If `buffer` is less than 1.
        DataError: If the index or a shard is missing or damaged.

    Example:
        >>> load_shards("train", "my/shards")[0]  # doctest: +SKIP
    """
    folder = Path(path).expanduser()
    if buffer < 1:
        raise ConfigError(f"buffer: expected at least 1, got {buffer}")
    index = read_index(folder)
    shards = []
    for name in split.split("+"):
        for entry in index["splits"].get(name, []):
            shard = Shard(folder / entry["file"], entry["count"], entry["bytes"])
            size = shard.path.stat().st_size if shard.path.is_file() else None
            if size != shard.size:
                raise DataError(
                    f"{shard.path}: expected the {shard.size:,} bytes of {INDEX}, got "
                    f"{'no such file' if size is None else f'{size:,}'} (write the shards again)"
                )
            shards.append(shard)
    channels, height, width = index["image_shape"]
    return ShardedDataset(folder.name, split, tuple(index["class_names"]), shards, (channels, height, width), buffer)


DATASETS.add(
    "shards",
    DatasetEntry(
        description="your own images in sharded tar archives, for data sets that do not fit in memory",
        source="the folder given as path, written by `torchcaps data make shards`",
        licence="yours",
        load=load_shards,
    ),
)
