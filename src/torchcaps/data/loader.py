"""Batches whose order and augmentation depend on (seed, epoch, batch number) alone."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from torchcaps.data._order import Order, balanced_order
from torchcaps.data.augment import Augment
from torchcaps.data.dataset import ImageDataset, to_float
from torchcaps.errors import ConfigError, DataError


def mix_seed(*numbers: int) -> int:
    """Combine numbers into one seed, so that neighbouring numbers give independent streams.

    >>> mix_seed(0, 1) != mix_seed(1, 0)
    True
    """
    low, high = np.random.SeedSequence(numbers).generate_state(2)
    return int(low) | int(high) << 32


def _ignore_signals(worker: int) -> None:
    """Leave Ctrl-C to the training process, which saves a checkpoint and ends the workers."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class BatchLoader(IterableDataset[tuple[Tensor, ...]]):
    """Iterate over batches of images and labels that are augmented as a whole; can be resumed at any batch.

    A batch is `(images, labels)`; for images of two objects `(images, labels, sources)`, with the sources augmented
    like their image.

    With `shuffle`, every pass over the data has a new order and random augmentation, and images that do not fill the
    last batch are dropped. Without it, all images come in order with the deterministic part of `augment`. An epoch is
    one pass, or `epoch_size` images; the next epoch continues the pass.

    Order and augmentation are computed for the global batch, and process `rank` of `world` takes its slice: several
    processes together see the batches of one process. With `workers` the same batches are prefetched by worker
    processes, which pays where images are read from disk.

    Args:
        data: Images and labels.
        batch_size: Number of images in a batch over all processes.
        shuffle: Whether to shuffle and to augment at random.
        augment: Augmentation; the default changes nothing.
        seed: Seed of order and augmentation.
        rank: Index of this process.
        world: Number of processes.
        epoch_size: Number of images in an epoch; the default is all.
        workers: Number of processes that read and augment; 0 does it in this one.
        balanced: Whether a shuffled pass has all classes equally often: images of rare classes are repeated.

    Shape:
        images: float32 [B, C, H, W] in [0, 1]; labels: int64 [B] or [B, 2]; sources: float32 [B, 2, C, H, W].

    Raises:
        ConfigError: If a size does not fit the others.
        DataError: If there are too few images.

    Example:
        >>> from torchcaps.data import load_data
        >>> images, labels = next(iter(BatchLoader(load_data("digits", "val"), 32)))
        >>> images.shape, labels.shape
        (torch.Size([32, 1, 28, 28]), torch.Size([32]))
    """

    def __init__(
        self,
        data: ImageDataset,
        batch_size: int,
        *,
        shuffle: bool = False,
        augment: Augment | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        epoch_size: int | None = None,
        workers: int = 0,
        balanced: bool = False,
    ) -> None:
        if not len(data):
            raise DataError(f"data: expected at least one image, got 0 ('{data.name}', split '{data.split}')")
        if batch_size < 1 or batch_size % world:
            raise ConfigError(f"batch_size: expected a multiple of the {world} processes, got {batch_size}")
        if shuffle and len(data) < world:
            raise DataError(f"data: expected at least {world} images, one per process, got {len(data)} ('{data.name}')")
        if epoch_size is not None and (epoch_size < batch_size or not shuffle):
            raise ConfigError(
                f"epoch_size: expected at least the {batch_size} images of a batch, and shuffle=True, got {epoch_size}"
            )
        if balanced and (not shuffle or data.num_labels > 1):
            raise ConfigError("balanced: expected shuffle=True and one label per image, got True")
        self.data = data
        # Fewer images than a batch make one batch, in equal slices for all processes.
        self.batch_size = min(batch_size, len(data) // world * world) if shuffle else batch_size
        self.shuffle = shuffle
        self.augment = Augment() if augment is None else augment
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch_size = epoch_size
        self.workers = workers
        self.balanced = balanced
        self.epoch = 0
        self._position = 0
        self._restored = False
        # Number and order of the current pass.
        self._order: tuple[int, Order] | None = None

    @property
    def _pass_size(self) -> int:
        """Number of batches in one pass over the data."""
        full, rest = divmod(len(self.data), self.batch_size)
        return full if self.shuffle else full + bool(rest)

    def __len__(self) -> int:
        return self._pass_size if self.epoch_size is None else self.epoch_size // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        if self._position and not self._restored:
            self.epoch, self._position = self.epoch + 1, 0
        self._restored = False
        worker = get_worker_info()
        if worker is None and self.workers:
            yield from self._prefetched()
            return
        start = self._position
        while self._position < len(self):
            number = self._position
            self._position += 1
            # The first worker has the first batch that is left, wherever a resumed epoch starts.
            if worker is None or (number - start) % worker.num_workers == worker.id:
                yield self._batch(number)

    def _prefetched(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the batches that are left in this epoch from worker processes."""
        rest = copy.copy(self)
        rest.workers, rest._restored = 0, True
        # The position here counts batches that were given out, not those that were prefetched.
        for batch in DataLoader(rest, batch_size=None, num_workers=self.workers, worker_init_fn=_ignore_signals):
            self._position += 1
            yield tuple(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the epoch and the number of batches of it that were given out."""
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration at a position that `state_dict` returned.

        Args:
            state: The position.
        """
        self.epoch, self._position, self._restored = state["epoch"], state["position"], True

    def _indices(self, number: int) -> Tensor:
        """Return the indices of the images of a batch of this epoch, [B]."""
        turn, place = divmod(self.epoch * len(self) + number, self._pass_size)
        start = place * self.batch_size
        stop = min(start + self.batch_size, len(self.data))
        if not self.shuffle:
            return torch.arange(start, stop)
        if self._order is None or self._order[0] != turn:
            seed = mix_seed(self.seed, turn)
            order = balanced_order(seed, self.data.labels) if self.balanced else self.data.shuffled_order(seed)
            self._order = turn, order
        return self._order[1](start, stop)

    def _batch(self, number: int) -> tuple[Tensor, ...]:
        indices = self._indices(number)  # [B]
        batch = self.data.batch(indices)
        pixels = batch.images  # [B, C, H, W]
        if batch.sources is not None:
            # As further channels, the sources are augmented like their image.
            pixels = torch.cat([pixels, batch.sources.flatten(1, 2)], dim=1)  # [B, 3 C, H, W]
        images = to_float(pixels)
        if self.shuffle:
            generator = torch.Generator().manual_seed(mix_seed(self.seed, self.epoch, number))
            images = self.augment(images, generator)
        else:
            images = self.augment.fixed(images)
        own = slice(self.rank * len(indices) // self.world, (self.rank + 1) * len(indices) // self.world)
        images, labels = images[own], batch.labels[own]
        if batch.sources is None:
            return images, labels
        channels = batch.images.shape[1]
        return images[:, :channels], labels, images[:, channels:].unflatten(1, (-1, channels))
