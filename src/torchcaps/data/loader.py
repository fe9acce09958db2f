"""Batches whose order and augmentation depend on nothing but (seed, epoch, batch number)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from torchcaps.data._draws import permuted
from torchcaps.data.augment import Augment
from torchcaps.data.image_data import ImageData, to_float
from torchcaps.data.shards import ShardData
from torchcaps.errors import ConfigError, DataError

# Up to here an order is made whole; beyond, each batch of it is computed when it is needed.
_WHOLE_ORDER = 2**22


def mix_seed(*numbers: int) -> int:
    """One seed from several numbers, so that neighbouring numbers give unrelated streams.

    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True
    """
    low, high = np.random.SeedSequence(numbers).generate_state(2)
    return int(low) | int(high) << 32


class BatchLoader(IterableDataset[tuple[Tensor, ...]]):
    """Iterates images and labels in batches, float [B, C, H, W] in [0, 1] and int64 [B].

    Where an image holds two things, labels are [B, 2] and a third tensor shows each of them alone, [B, 2, C, H, W],
    augmented as the image is.

    With `shuffle` each pass through the data has a new order, augmented at random, and what does not fill its last
    batch is left out; without it everything comes, in order, with the fixed part of `augment` alone. An epoch is a
    pass, or `epoch_size` images, and the next epoch goes on from there. Order and augmentation are drawn for the global
    batch and process `rank` of `world` takes its slice, so that many processes together see what one would.
    `state_dict` is the position, no more. `torch.utils.data.DataLoader(loader, batch_size=None, num_workers=2)` reads
    the same batches ahead in worker processes, which share them out among themselves.

    >>> from torchcaps.data import load_data
    >>> images, labels = next(iter(BatchLoader(load_data("digits", "val"), 32)))
    >>> images.shape, labels.shape
    (torch.Size([32, 1, 28, 28]), torch.Size([32]))
    """

    def __init__(
        self,
        data: ImageData,
        batch_size: int,
        *,
        shuffle: bool = False,
        augment: Augment | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        epoch_size: int | None = None,
    ) -> None:
        if not len(data):
            raise DataError(f"data: expected at least one image, got none ('{data.name}', split '{data.split}')")
        if batch_size < 1 or batch_size % world:
            raise ConfigError(f"batch_size: expected a multiple of the {world} processes, got {batch_size}")
        if shuffle and len(data) < world:
            raise DataError(f"data: expected an image for each of {world} processes, got {len(data)} ('{data.name}')")
        if epoch_size is not None and (epoch_size < batch_size or not shuffle):
            raise ConfigError(
                f"epoch_size: expected at least one batch of {batch_size} images of a shuffled pass, got {epoch_size}"
            )
        self.data = data
        # Fewer images than a batch holds make one batch, of equal parts for all processes.
        self.batch_size = min(batch_size, len(data) // world * world) if shuffle else batch_size
        self.shuffle = shuffle
        self.augment = Augment() if augment is None else augment
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch_size = epoch_size
        self.epoch = 0
        self._position = 0
        self._restored = False
        # The number of the pass whose order is at hand, and the order.
        self._shuffled: tuple[int, Tensor] | None = None

    @property
    def _pass_size(self) -> int:
        """How many batches a pass through the data has."""
        full, rest = divmod(len(self.data), self.batch_size)
        return full if self.shuffle else full + bool(rest)

    def __len__(self) -> int:
        return self._pass_size if self.epoch_size is None else self.epoch_size // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        if self._position and not self._restored:
            self.epoch, self._position = self.epoch + 1, 0
        self._restored = False
        worker = get_worker_info()
        while self._position < len(self):
            number = self._position
            self._position += 1
            if worker is None or number % worker.num_workers == worker.id:
                yield self._batch(number)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: its epoch, and how many batches of it have been given out."""
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on from there."""
        self.epoch, self._position, self._restored = state["epoch"], state["position"], True

    def _chosen(self, number: int) -> Tensor:
        """Which images make the batch of this number of the epoch, [B]."""
        turn, place = divmod(self.epoch * len(self) + number, self._pass_size)
        start = place * self.batch_size
        stop = min(start + self.batch_size, len(self.data))
        if not self.shuffle:
            return torch.arange(start, stop)
        seed = mix_seed(self.seed, turn)
        if isinstance(self.data, ShardData):
            return self.data.shuffled(seed, start, stop)
        if len(self.data) > _WHOLE_ORDER:
            return torch.from_numpy(permuted(seed, np.arange(start, stop), len(self.data)))
        if self._shuffled is None or self._shuffled[0] != turn:
            generator = torch.Generator().manual_seed(seed)
            self._shuffled = turn, torch.randperm(len(self.data), generator=generator)
        return self._shuffled[1][start:stop]

    def _batch(self, number: int) -> tuple[Tensor, ...]:
        chosen = self._chosen(number)  # [B]
        batch = self.data.batch(chosen)
        pixels = batch.images  # [B, C, H, W]
        if batch.sources is not None:
            # As further channels the sources go through the same changes as their image.
            pixels = torch.cat([pixels, batch.sources.flatten(1, 2)], dim=1)  # [B, 3 C, H, W]
        images = to_float(pixels)
        if self.shuffle:
            generator = torch.Generator().manual_seed(mix_seed(self.seed, self.epoch, number))
            images = self.augment(images, generator)
        else:
            images = self.augment.fixed(images)
        part = slice(self.rank * len(chosen) // self.world, (self.rank + 1) * len(chosen) // self.world)
        images, labels = images[part], batch.labels[part]
        if batch.sources is None:
            return images, labels
        channels = batch.images.shape[1]
        return images[:, :channels], labels, images[:, channels:].unflatten(1, (-1, channels))
