"""Images in sharded tar archives, for data that do not fit in memory; `torchcaps data make shards` writes them.

The layout is that of webdataset: the members `00000042.png` and `00000042.cls` are one image and its class number.
Beside the shards lies `index.json`: class names, shape, and for each part its shards with counts and sizes. Where each
image lies is known from the headers of its shard, so that any of them can be read, and what a process reads, and
from where a run goes on, is a matter of numbers alone, as with data in memory.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from torchcaps.data._shard_files import INDEX, Shard, read_index, read_table
from torchcaps.data.datasets import DATASETS, Dataset
from torchcaps.data.image_data import Batch, ImageData, places
from torchcaps.data.transforms import crop
from torchcaps.errors import ConfigError, DataError


class ShardData(ImageData):
    """One part of a sharded data set; images are read when they are asked for.

    A shuffled pass takes the shards in a random order and shuffles within windows of `buffer` images, so that only a
    few shards are read from at a time.
    """

    _shards: Sequence[Shard]
    _shape: tuple[int, int, int]
    _buffer: int
    _crop: int | None
    _tables: dict[int, np.ndarray]

    def __init__(
        self,
        name: str,
        split: str,
        class_names: tuple[str, ...],
        shards: Sequence[Shard],
        image_shape: tuple[int, int, int],
        buffer: int,
        crop_size: int | None = None,
    ) -> None:
        origin = str(shards[0].path.parent) if shards else name
        values = {"name": name, "split": split, "class_names": class_names, "origin": origin, "meta": {}}
        own = {"_shards": shards, "_shape": image_shape, "_buffer": buffer, "_crop": crop_size, "_tables": {}}
        # The base is frozen, and its images and labels are not stored here.
        for key, value in {**values, **own}.items():
            object.__setattr__(self, key, value)

    @cached_property
    def _starts(self) -> np.ndarray:
        """The number of the first image of each shard, and the number of all, [S + 1]."""
        return np.cumsum([0, *(shard.count for shard in self._shards)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self._shape if self._crop is None else (self._shape[0], self._crop, self._crop)

    @property
    def images(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All images at once [N, C, H, W], for a part that is small enough."""
        return self.batch(torch.arange(len(self))).images

    @cached_property
    def labels(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The class numbers of all images, [N]."""
        tables = [self._table(number)[:, 2] for number in range(len(self._shards))]
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *tables]))

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        at = places(indices)
        numbers = (at.nonzero().squeeze(1) if at.dtype == torch.bool else at).numpy()  # [n]
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise DataError(
                f"indices: expected 0 to {len(self) - 1}, got {numbers.min()} to {numbers.max()} ('{self.name}')"
            )
        shards = np.searchsorted(self._starts, numbers, side="right") - 1  # [n]
        rows = [self._table(shard)[number - self._starts[shard]] for shard, number in zip(shards, numbers, strict=True)]
        # An array, for a tensor that is made in inference mode cannot be filled by other threads.
        pixels = np.empty((len(numbers), *self._shape), np.uint8)  # [n, C, H, W]

        def fill(item: int) -> None:
            pixels[item] = self._read(self._shards[shards[item]].path, *rows[item][:2].tolist())

        # Pillow lets go of the interpreter while it decodes.
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, range(len(numbers))))
        images = torch.from_numpy(pixels)
        labels = torch.tensor([int(row[2]) for row in rows], dtype=torch.int64)
        return Batch(images if self._crop is None else crop(images, self._crop), labels, None, {})

    def subset(self, indices: Tensor | Sequence[int]) -> ImageData:
        """The images at these places, read into memory."""
        chosen = self.batch(indices)
        return ImageData(self.name, self.split, chosen.images, chosen.labels, self.class_names, self.origin)

    def cropped(self, size: int) -> ShardData:
        crop(torch.empty(1, *self.image_shape), size)
        return ShardData(self.name, self.split, self.class_names, self._shards, self._shape, self._buffer, size)

    def shuffled(self, seed: int, start: int, stop: int) -> Tensor:
        """The numbers of the images at places start to stop of a shuffled pass: a function of the seed alone."""
        draw = np.random.default_rng(np.random.SeedSequence(seed))
        order = draw.permutation(len(self._shards))
        counts = np.diff(self._starts)[order]
        ends = np.cumsum(counts)
        found = []
        for window in range(start // self._buffer, -(-stop // self._buffer)):
            low, high = window * self._buffer, min((window + 1) * self._buffer, len(self))
            stream = np.arange(low, high)
            turn = np.searchsorted(ends, stream, side="right")  # which shard of the order
            numbers = self._starts[order[turn]] + stream - (ends - counts)[turn]
            mixed = np.random.default_rng(np.random.SeedSequence((seed, window))).permutation(numbers)
            found.append(mixed[max(start, low) - low : min(stop, high) - low])
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *found]))

    def _table(self, number: int) -> np.ndarray:
        """Where the images of a shard lie: offset, size and label of each, [n, 3]."""
        if number not in self._tables:
            self._tables[number] = read_table(self._shards[number], len(self.class_names))
        return self._tables[number]

    def _read(self, path: Path, offset: int, size: int) -> np.ndarray:
        channels, height, width = self._shape
        try:
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read(size)
            with Image.open(io.BytesIO(content)) as image:
                if image.size != (width, height):
                    raise ValueError(f"{image.height}x{image.width} pixels where {height}x{width} were promised")
                pixels = np.asarray(image.convert("L" if channels == 1 else "RGB")).reshape(height, width, channels)
        # Damaged files make Pillow's decoders fail in ways too many to list.
        except Exception as error:
            raise DataError(f"{path}: expected an image at byte {offset}, got {error}; make the shards again") from None
        return pixels.transpose(2, 0, 1)  # [C, H, W]


def load_shards(split: str, path: str | Path, *, buffer: int = 8192) -> ShardData:
    """One part of the shards in a folder, as `torchcaps data make shards` wrote them.

    `buffer` is within how many images a pass is shuffled, beside the order of the shards.
    """
    folder = Path(path).expanduser()
    if buffer < 1:
        raise ConfigError(f"buffer: expected a count of at least 1, got {buffer}")
    index = read_index(folder)
    shards = []
    for part in split.split("+"):
        for entry in index["parts"].get(part, []):
            shard = Shard(folder / entry["file"], entry["count"], entry["bytes"])
            size = shard.path.stat().st_size if shard.path.is_file() else None
            if size != shard.size:
                raise DataError(
                    f"{shard.path}: expected a file of {shard.size:,} bytes, as {INDEX} says, got "
                    f"{'no file' if size is None else f'{size:,} bytes'}; make the shards again"
                )
            shards.append(shard)
    channels, height, width = index["image_shape"]
    return ShardData(folder.name, split, tuple(index["class_names"]), shards, (channels, height, width), buffer)


DATASETS.add(
    "shards",
    Dataset(
        description="your own images in sharded tar archives, for data that do not fit in memory",
        source="the folder given as path; `torchcaps data make shards` writes one from a folder of images",
        licence="yours",
        load=load_shards,
    ),
)
