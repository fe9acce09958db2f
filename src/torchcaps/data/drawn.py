"""Images that are drawn when they are asked for, so that there can be more of them than any memory holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from torchcaps.data.image_data import Batch, ImageData, places
from torchcaps.errors import DataError

# How many images are drawn at a time where all are gone through.
_AT_ONCE = 1024


class DrawnData(ImageData):
    """One part of a generated data set: `draw(numbers)` makes the samples of these numbers, int64 [n].

    A sample depends on its number alone, so it is the same in whatever batch, process or run it is asked for.

    >>> def draw(numbers: Tensor) -> Batch:
    ...     images = numbers.view(-1, 1, 1, 1).expand(-1, 1, 2, 2).to(torch.uint8)
    ...     return Batch(images, numbers % 2, None, {})
    >>> data = DrawnData("numbers", "train", ("even", "odd"), "made up", 60_000_000, draw)
    >>> len(data), data.image_shape, data.batch([3, 4]).labels
    (60000000, (1, 2, 2), tensor([1, 0]))
    """

    def __init__(
        self,
        name: str,
        split: str,
        class_names: tuple[str, ...],
        origin: str,
        numbers: int | Tensor,
        draw: Callable[[Tensor], Batch],
    ) -> None:
        if (numbers if isinstance(numbers, int) else len(numbers)) < 0:
            raise DataError(f"numbers: expected a count of samples, got {numbers}")
        values = {"name": name, "split": split, "class_names": class_names, "origin": origin}
        # The base is frozen, and its images and labels are not stored here.
        for key, value in {**values, "_numbers": numbers, "_draw": draw}.items():
            object.__setattr__(self, key, value)

    _numbers: int | Tensor
    _draw: Callable[[Tensor], Batch]

    def __len__(self) -> int:
        return self._numbers if isinstance(self._numbers, int) else len(self._numbers)

    @cached_property
    def _sample(self) -> Batch:
        return self._draw(torch.zeros(1, dtype=torch.int64))

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self._sample.images.shape[1:]
        return channels, height, width

    @property
    def num_labels(self) -> int:
        return 1 if self._sample.labels.dim() == 1 else self._sample.labels.shape[1]

    @property
    def images(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All images at once [N, C, H, W], for a part that is small enough."""
        return torch.cat([batch.images for batch in self.batches(_AT_ONCE)])

    @cached_property
    def labels(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The class numbers of all samples, [N] or [N, 2]."""
        return self._known[0]

    @cached_property
    def meta(self) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What else is known of each sample, each [N]."""
        return self._known[1]

    @cached_property
    def _known(self) -> tuple[Tensor, dict[str, Tensor]]:
        labels, metas = [self._sample.labels[:0]], [{name: old[:0] for name, old in self._sample.meta.items()}]
        for batch in self.batches(_AT_ONCE):
            labels.append(batch.labels)
            metas.append(batch.meta)
        return torch.cat(labels), {name: torch.cat([meta[name] for meta in metas]) for name in metas[0]}

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        return self._draw(self._at(indices))

    def subset(self, indices: Tensor | Sequence[int]) -> DrawnData:
        return self._with(self._at(indices), self._draw)

    def cropped(self, size: int) -> DrawnData:
        return self._with(self._numbers, lambda numbers: self._draw(numbers).cropped(size))

    def _with(self, numbers: int | Tensor, draw: Callable[[Tensor], Batch]) -> DrawnData:
        return DrawnData(self.name, self.split, self.class_names, self.origin, numbers, draw)

    def _at(self, indices: Tensor | Sequence[int]) -> Tensor:
        at = places(indices)
        at = at.nonzero().squeeze(1) if at.dtype == torch.bool else at  # [n]
        if len(at) and not 0 <= int(at.min()) <= int(at.max()) < len(self):
            raise DataError(
                f"indices: expected 0 to {len(self) - 1}, got {int(at.min())} to {int(at.max())} ('{self.name}')"
            )
        return at if isinstance(self._numbers, int) else self._numbers[at]
