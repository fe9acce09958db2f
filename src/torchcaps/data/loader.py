"""Batches whose order and augmentation depend on nothing but (seed, epoch, batch number)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.augment import Augment
from torchcaps.data.image_data import ImageData, to_float
from torchcaps.errors import ConfigError, DataError


def mix_seed(*numbers: int) -> int:
    """One seed from several numbers, so that neighbouring numbers give unrelated streams.

    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True
    """
    low, high = np.random.SeedSequence(numbers).generate_state(2)
    return int(low) | int(high) << 32


class BatchLoader:
    """Iterates images and labels in batches, float [B, C, H, W] in [0, 1] and int64 [B].

    With `shuffle` each pass is a new epoch in a new order, augmented at random, and what does not fill the last batch
    is left out; without it everything comes, in order, with the fixed part of `augment` alone. Order and augmentation
    are drawn for the global batch and process `rank` of `world` takes its slice, so that many processes together see
    what one would. `state_dict` is the position, no more.

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
    ) -> None:
        if not len(data):
            raise DataError(f"data: expected at least one image, got none ('{data.name}', split '{data.split}')")
        if batch_size < 1 or batch_size % world:
            raise ConfigError(f"batch_size: expected a multiple of the {world} processes, got {batch_size}")
        if shuffle and len(data) < world:
            raise DataError(f"data: expected an image for each of {world} processes, got {len(data)} ('{data.name}')")
        self.data = data
        # Fewer images than a batch holds make one batch, of equal parts for all processes.
        self.batch_size = min(batch_size, len(data) // world * world) if shuffle else batch_size
        self.shuffle = shuffle
        self.augment = Augment() if augment is None else augment
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch = 0
        self._position = 0
        self._restored = False

    def __len__(self) -> int:
        full, rest = divmod(len(self.data), self.batch_size)
        return full if self.shuffle else full + bool(rest)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._position and not self._restored:
            self.epoch, self._position = self.epoch + 1, 0
        self._restored = False
        order = self._order()
        while self._position < len(self):
            number = self._position
            self._position += 1
            yield self._batch(order, number)

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: its epoch, and how many batches of it have been given out."""
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next pass go on from there."""
        self.epoch, self._position, self._restored = state["epoch"], state["position"], True

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.data))
        generator = torch.Generator().manual_seed(mix_seed(self.seed, self.epoch))
        return torch.randperm(len(self.data), generator=generator)

    def _batch(self, order: Tensor, number: int) -> tuple[Tensor, Tensor]:
        chosen = order[number * self.batch_size : (number + 1) * self.batch_size]
        images = to_float(self.data.images[chosen])  # [B, C, H, W]
        if self.shuffle:
            generator = torch.Generator().manual_seed(mix_seed(self.seed, self.epoch, number))
            images = self.augment(images, generator)
        else:
            images = self.augment.fixed(images)
        part = slice(self.rank * len(chosen) // self.world, (self.rank + 1) * len(chosen) // self.world)
        return images[part], self.data.labels[chosen][part]
