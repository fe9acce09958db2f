"""Data sets whose images are generated when they are read, so that their number is not bounded by memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor

from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.errors import DataError

# Batch size where the labels of all samples are generated.
_READ_SIZE = 1024


class GeneratedDataset(ImageDataset):
    """One split of a generated data set.

    A sample depends on its number alone, so it is the same in every batch, process and run.

    Args:
        name: Name of the data set.
        split: Name of the split.
        class_names: Name of each class, in the order of the class indices.
        origin: How the images are generated, for reports.
        numbers: Number of samples, or the sample numbers of the split, int64 [N].
        generate: Function from sample numbers, int64 [n], to a batch. Worker processes that are spawned need one
            that can be pickled.

    Raises:
        DataError: If the number of samples is negative.

    Example:
        >>> def generate(numbers: Tensor) -> Batch:
        ...     images = numbers.view(-1, 1, 1, 1).expand(-1, 1, 2, 2).to(torch.uint8)
        ...     return Batch(images, numbers % 2, None, {})
        >>> data = GeneratedDataset("numbers", "train", ("even", "odd"), "an example", 60_000_000, generate)
        >>> len(data), data.image_shape, data.batch([3, 4]).labels
        (60000000, (1, 2, 2), tensor([1, 0]))
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: Sequence[str],
        origin: str,
        numbers: int | Tensor,
        generate: Callable[[Tensor], Batch],
    ) -> None:
        super().__init__(name, split, class_names, origin)
        if isinstance(numbers, int) and numbers < 0:
            raise DataError(f"numbers: expected a number of samples, got {numbers}")
        self._numbers = numbers
        self._generate = generate

    def __len__(self) -> int:
        return self._numbers if isinstance(self._numbers, int) else len(self._numbers)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self._first.images.shape[1:]
        return channels, height, width

    @property
    def num_labels(self) -> int:
        """Number of labels per image: 1 or 2."""
        return 1 if self._first.labels.dim() == 1 else self._first.labels.shape[1]

    @property
    def labels(self) -> Tensor:
        """Class indices of all samples, int64 [N] or [N, 2]; the first access generates every sample."""
        return self._annotations[0]

    @property
    def meta(self) -> dict[str, Tensor]:
        """Further values per sample, each [N]; the first access generates every sample."""
        return self._annotations[1]

    def read(self, indices: Tensor) -> Batch:
        """Return the samples at these indices, int64 [n] in 0 to N - 1, in this order."""
        return self._generate(self._numbers_at(indices))

    def select(self, indices: Tensor) -> GeneratedDataset:
        """Return the data set of the samples at these indices, int64 [n] in 0 to N - 1, in this order."""
        return self._with(self._numbers_at(indices), self._generate)

    def cropped(self, size: int) -> GeneratedDataset:
        """Return the data set with every image and source cropped to its centre, size x size."""
        return self._with(self._numbers, partial(_generate_cropped, self._generate, size))

    @cached_property
    def _first(self) -> Batch:
        return self._generate(torch.zeros(1, dtype=torch.int64))

    @cached_property
    def _annotations(self) -> tuple[Tensor, dict[str, Tensor]]:
        labels, metas = [self._first.labels[:0]], [{name: old[:0] for name, old in self._first.meta.items()}]
        for batch in self.batches(_READ_SIZE):
            labels.append(batch.labels)
            metas.append(batch.meta)
        return torch.cat(labels), {name: torch.cat([meta[name] for meta in metas]) for name in metas[0]}

    def _numbers_at(self, indices: Tensor) -> Tensor:
        return indices if isinstance(self._numbers, int) else self._numbers[indices]

    def _with(self, numbers: int | Tensor, generate: Callable[[Tensor], Batch]) -> GeneratedDataset:
        other = GeneratedDataset(self.name, self.split, self.class_names, self.origin, numbers, generate)
        other.transform = self.transform
        return other


def _generate_cropped(generate: Callable[[Tensor], Batch], size: int, numbers: Tensor) -> Batch:
    return generate(numbers).cropped(size)
