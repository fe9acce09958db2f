"""Images in memory, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.dataset import Batch, ImageDataset
from torchcaps.data.transforms import crop
from torchcaps.errors import ConfigError, DataError, ShapeError


class InMemoryDataset(ImageDataset):
    """One split of a data set with all images in memory.

    Args:
        name: Name of the data set.
        split: Name of the split.
        images: Pixels, uint8 [N, C, H, W] or, of volumes, [N, C, D, H, W]; signals, float32 [N, C, T].
        labels: Class indices, int64 [N].
        class_names: Name of each class, in the order of the class indices.
        origin: Where the images come from, for reports.
        meta: Further values per image, each [N].

    Raises:
        ShapeError: If the type or shape of images or labels differs.
        DataError: If the numbers of images, labels and meta values differ, or a label is not a class index.

    Example:
        >>> data = InMemoryDataset.from_arrays(np.zeros((6, 28, 28), np.uint8), [0, 1, 2, 0, 1, 2])
        >>> len(data), data.image_shape, data.num_classes
        (6, (1, 28, 28), 3)
    """

    def __init__(
        self,
        name: str,
        split: str,
        images: Tensor,
        labels: Tensor,
        class_names: Sequence[str],
        origin: str,
        meta: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(name, split, class_names, origin)
        self._images = images
        self._labels = labels
        self._meta = dict(meta or {})
        self._check()

    @classmethod
    def from_arrays(
        cls,
        images: Any,
        labels: Any,
        *,
        class_names: Sequence[str] | None = None,
        name: str = "arrays",
        split: str = "train",
        rank: int = 2,
    ) -> InMemoryDataset:
        """Make a data set from arrays, tensors or lists.

        Args:
            images: Pixels [N, H, W] or [N, C, H, W], bytes or floats in [0, 1]; floats are rounded to bytes. With
                `rank=1` signals [N, T] or [N, C, T], finite numbers that are kept as they are: standardise them. With
                `rank=3` volumes [N, D, H, W] or [N, C, D, H, W], as images.
            labels: Class indices [N].
            class_names: Name of each class; the default is the class index.
            name: Name of the data set.
            split: Name of the split.
            rank: 1 for signals, 2 for images, 3 for volumes.

        Returns:
            The data set, with a copy of the images.

        Raises:
            ShapeError: If the shape of images or labels differs.
            ConfigError: If `rank` is unknown.
            DataError: If floats leave [0, 1], signals are not finite or empty, or a label is not a class index.

        Example:
            >>> InMemoryDataset.from_arrays(torch.rand(2, 3, 8, 8), [1, 0], class_names=["cat", "dog"]).class_names
            ('cat', 'dog')
            >>> InMemoryDataset.from_arrays(torch.randn(2, 3, 100), [1, 0], rank=1).image_shape
            (3, 100)
        """
        if rank not in (1, 2, 3):
            raise ConfigError(f"rank: expected 1 for signals, 2 for images or 3 for volumes, got {rank!r}")
        pixels = (_signals if rank == 1 else _to_bytes)(_with_channels(np.asarray(images), rank))  # [N, C, H, W]
        indices = np.asarray(labels)  # [N]
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise ShapeError(f"labels: expected integers [N], got {indices.dtype} {indices.shape}")
        count = int(indices.max()) + 1 if len(indices) else 0
        return cls(
            name=name,
            split=split,
            images=torch.from_numpy(pixels),
            labels=torch.from_numpy(indices.astype(np.int64)),
            class_names=tuple(map(str, range(count) if class_names is None else class_names)),
            origin="arrays",
        )

    @classmethod
    def from_hub(
        cls, dataset: Any, *, image: str = "image", label: str = "label", name: str = "hub", split: str = "train"
    ) -> InMemoryDataset:
        """Make a data set from one split of a Hugging Face data set, or any rows that are mappings.

        The `features` of the data set give the class names where they have them.

        Args:
            dataset: Rows with an image (Pillow's, or bytes [H, W] or [H, W, 3]) and a class index.
            image: Column of the images, which all have one size.
            label: Column of the class indices.
            name: Name of the data set.
            split: Name of the split.

        Returns:
            The data set.

        Raises:
            ShapeError: If the images differ in size.
            DataError: If a column is missing, or holds something else.

        Example:
            >>> rows = [{"image": np.zeros((8, 8), np.uint8), "label": n % 2} for n in range(4)]
            >>> InMemoryDataset.from_hub(rows).image_shape
            (1, 8, 8)
        """
        from torchcaps.data._hub import hub_arrays

        images, indices, class_names = hub_arrays(dataset, image, label)
        data = cls.from_arrays(images, indices, class_names=class_names, name=name, split=split)
        data.origin = "Hugging Face data set"
        return data

    def __len__(self) -> int:
        return len(self._images)

    @property
    def images(self) -> Tensor:
        """All images, uint8 [N, C, H, W]."""
        return self._images

    @property
    def labels(self) -> Tensor:
        """Class indices of all images, int64 [N]."""
        return self._labels

    @property
    def meta(self) -> dict[str, Tensor]:
        """Further values per image, each [N]."""
        return self._meta

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image; (channels, length) of a signal, three sides of a volume."""
        return tuple(self._images.shape[1:])

    @property
    def in_memory(self) -> bool:
        """True."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the images take."""
        return self._images.nbytes

    def read(self, indices: Tensor) -> Batch:
        """Return the images at these indices, int64 [n] in 0 to N - 1, in this order."""
        meta = {name: values[indices] for name, values in self._meta.items()}
        return Batch(self._images[indices], self._labels[indices], None, meta)

    def select(self, indices: Tensor) -> Self:
        """Return the data set of the images at these indices, int64 [n] in 0 to N - 1, in this order."""
        chosen = self.read(indices)
        return self._copied(_images=chosen.images, _labels=chosen.labels, _meta=chosen.meta)

    def cropped(self, size: int) -> Self:
        """Return the data set with every image cropped to its centre, size x size."""
        if self._images.dim() != 4:
            raise ShapeError(f"size: expected images to crop, got {self.image_shape} ('{self.name}')")
        return self._copied(_images=crop(self._images, size))

    def _check(self) -> None:
        images, labels = self._images, self._labels
        if images.dim() not in (3, 4, 5) or images.dtype != (torch.float32 if images.dim() == 3 else torch.uint8):
            raise ShapeError(
                f"images: expected uint8 [N, C, H, W], or float32 [N, C, T] of signals, got {images.dtype} "
                f"{tuple(images.shape)} ('{self.name}')"
            )
        if labels.dim() != 1 or labels.dtype != torch.int64:
            raise ShapeError(f"labels: expected int64 [N], got {labels.dtype} {tuple(labels.shape)} ('{self.name}')")
        if len(labels) != len(images):
            raise DataError(f"labels: expected {len(images)}, one per image, got {len(labels)} ({self.origin})")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.num_classes:
            raise DataError(
                f"labels: expected 0 to {self.num_classes - 1}, got {int(labels.min())} to {int(labels.max())} "
                f"({self.origin})"
            )
        for name, values in self._meta.items():
            if len(values) != len(images):
                raise DataError(f"meta '{name}': expected {len(images)} values, got {len(values)}")


def _with_channels(images: np.ndarray, rank: int) -> np.ndarray:
    """Return samples with an axis of channels, [N, C, H, W]."""
    if images.ndim == rank + 1:
        images = images[:, None]  # [N, 1, H, W]
    if images.ndim != rank + 2:
        sides = {1: "T", 2: "H, W", 3: "D, H, W"}[rank]
        raise ShapeError(f"images: expected [N, {sides}] or [N, C, {sides}], got {images.shape} ({images.ndim} axes)")
    return images


def _signals(values: np.ndarray) -> np.ndarray:
    """Return signals as a contiguous copy, float32 [N, C, T]."""
    if values.dtype.kind not in "iuf":
        raise DataError(f"images: expected signals of numbers, got {values.dtype}")
    if not values.shape[2] or not values.shape[1]:
        raise ShapeError(f"images: expected signals of at least one value, got {values.shape}")
    with np.errstate(over="ignore"):
        signals = values.astype(np.float32)
    if not np.isfinite(signals).all():
        sample, channel, time = np.argwhere(~np.isfinite(signals))[0].tolist()
        raise DataError(
            f"images: expected finite signals, got {values[sample, channel, time]} in signal {sample}, channel "
            f"{channel}, time {time}"
        )
    return np.ascontiguousarray(signals)


def _to_bytes(images: np.ndarray) -> np.ndarray:
    """Return images or volumes as a contiguous copy, uint8 [N, C, H, W]."""
    if images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 2, 3):
        raise ShapeError(
            f"images: expected [N, C, H, W], got {images.shape} (channels last; use images.transpose(0, 3, 1, 2))"
        )
    if images.dtype == np.uint8:
        # A copy: changes of the caller's array must not change the data set.
        return np.array(images, order="C")
    if images.dtype.kind != "f":
        raise DataError(f"images: expected uint8, or floats in [0, 1], got {images.dtype}")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(f"images: expected floats in [0, 1], got values from {images.min():g} to {images.max():g}")
    return np.rint(images * 255).astype(np.uint8)
