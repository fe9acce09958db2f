"""Labelled images: what every data set is once it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.transforms import crop
from torchcaps.errors import DataError, ShapeError


class Batch(NamedTuple):
    """Some images of a data set, and what is known of them.

    Where two things are in one image there are two labels, and `sources` shows each thing as it is alone.
    """

    images: Tensor  # uint8 [B, C, H, W]
    labels: Tensor  # int64 [B], or [B, 2]
    sources: Tensor | None  # uint8 [B, 2, C, H, W]
    meta: dict[str, Tensor]  # each [B]

    def cropped(self, size: int) -> Batch:
        """The same with the centre of every image and source."""
        sources = None if self.sources is None else crop(self.sources, size)
        return self._replace(images=crop(self.images, size), sources=sources)


@dataclass(frozen=True, eq=False)
class ImageData:
    """One part of a data set, whole in memory: images as bytes, a class number each, and where they came from.

    `meta` holds what else is known of each image (a viewpoint, an instance), one tensor [N] per name. Data that are not
    in memory (`DrawnData`, `ShardData`) are ImageData too: whoever goes through images with `batch` or `batches`
    can use them all.

    >>> data = ImageData.from_arrays(np.zeros((6, 28, 28), np.uint8), [0, 1, 2, 0, 1, 2])
    >>> len(data), data.image_shape, data.num_classes
    (6, (1, 28, 28), 3)
    """

    name: str
    split: str
    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N]
    class_names: tuple[str, ...]
    origin: str
    meta: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images.dim() != 4 or self.images.dtype != torch.uint8:
            raise ShapeError(
                f"images: expected uint8 [N, C, H, W], got {self.images.dtype} {tuple(self.images.shape)} "
                f"(of {self.name})"
            )
        if self.labels.dim() != 1 or self.labels.dtype != torch.int64:
            raise ShapeError(
                f"labels: expected int64 [N], got {self.labels.dtype} {tuple(self.labels.shape)} (of {self.name})"
            )
        if len(self.labels) != len(self.images):
            raise DataError(
                f"labels: expected one for each of {len(self.images)} images, got {len(self.labels)} (of {self.origin})"
            )
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.num_classes:
            raise DataError(
                f"labels: expected class numbers from 0 to {self.num_classes - 1}, got "
                f"{int(self.labels.min())} to {int(self.labels.max())} (of {self.origin})"
            )
        for name, values in self.meta.items():
            if len(values) != len(self.images):
                raise DataError(f"meta '{name}': expected {len(self.images)} values, got {len(values)}")

    @classmethod
    def from_arrays(
        cls,
        images: Any,
        labels: Any,
        *,
        class_names: Sequence[str] | None = None,
        name: str = "arrays",
        split: str = "train",
    ) -> ImageData:
        """Images and class numbers that are in memory already, as arrays, tensors or lists.

        images [N, H, W] or [N, C, H, W] are bytes from 0 to 255, or floats in [0, 1], which are rounded to bytes;
        labels [N] are whole numbers from 0. Without `class_names` the classes are called by their numbers.

        >>> ImageData.from_arrays(torch.rand(2, 3, 8, 8), [1, 0], class_names=["cat", "dog"]).class_names
        ('cat', 'dog')
        """
        pixels = _bytes(np.asarray(images))  # [N, C, H, W]
        numbers = np.asarray(labels)  # [N]
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ShapeError(f"labels: expected whole numbers [N], got {numbers.dtype} {numbers.shape}")
        count = int(numbers.max()) + 1 if len(numbers) else 0
        return cls(
            name=name,
            split=split,
            images=torch.from_numpy(pixels),
            labels=torch.from_numpy(numbers.astype(np.int64)),
            class_names=tuple(map(str, range(count) if class_names is None else class_names)),
            origin="arrays handed in",
        )

    @classmethod
    def from_hub(
        cls, dataset: Any, *, image: str = "image", label: str = "label", name: str = "hub", split: str = "train"
    ) -> ImageData:
        """One split of a Hugging Face data set: pictures in the column `image`, class numbers in the column `label`.

        Anything does whose rows are mappings of that kind; pictures are Pillow's, or bytes [H, W] or [H, W, 3], all of
        one size. `features` name the classes where there are any.

        >>> rows = [{"image": np.zeros((8, 8), np.uint8), "label": n % 2} for n in range(4)]
        >>> ImageData.from_hub(rows).image_shape
        (1, 8, 8)
        """
        from torchcaps.data.hub import hub_arrays

        images, numbers, class_names = hub_arrays(dataset, image, label)
        data = cls.from_arrays(images, numbers, class_names=class_names, name=name, split=split)
        return replace(data, origin="a Hugging Face data set handed in")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image: what a model is made for."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """How many classes there are, also where this part holds images of only some."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_labels(self) -> int:
        """How many things are in an image: 1, or 2 where labels are [N, 2]."""
        return 1

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        """The images at these places, in this order, or where a mask [N] is true."""
        at = places(indices)  # [n]
        meta = {name: values[at] for name, values in self.meta.items()}
        return Batch(self.images[at], self.labels[at], None, meta)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """All images in order, so many at a time."""
        for start in range(0, len(self), batch_size):
            yield self.batch(torch.arange(start, min(start + batch_size, len(self))))

    def subset(self, indices: Tensor | Sequence[int]) -> ImageData:
        """The same data with only the images at these places, in this order, or where a mask [N] is true."""
        chosen = self.batch(indices)
        return replace(self, images=chosen.images, labels=chosen.labels, meta=chosen.meta)

    def spread(self, count: int) -> ImageData:
        """So many of the images, evenly from the first to the last; all where there are no more."""
        return self if len(self) <= count else self.subset(torch.arange(count) * len(self) // count)

    def cropped(self, size: int) -> ImageData:
        """The same data with only the centre of each image, size x size."""
        return replace(self, images=crop(self.images, size))


def places(indices: Tensor | Sequence[int]) -> Tensor:
    """Places as int64, or a mask as it is."""
    at = torch.as_tensor(indices)
    # An empty list would be taken for floats.
    return at if at.dtype == torch.bool else at.to(torch.int64)


def to_float(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]: what models and augmentation take.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    if images.dtype != torch.uint8:
        raise ShapeError(f"images: expected bytes, got {images.dtype} (floats already?)")
    return images.to(torch.float32).div_(255)


def _bytes(images: np.ndarray) -> np.ndarray:
    if images.ndim == 3:
        images = images[:, None]  # [N, 1, H, W]
    if images.ndim != 4:
        raise ShapeError(f"images: expected [N, H, W] or [N, C, H, W], got {images.shape} ({images.ndim} axes)")
    if images.shape[3] in (1, 3) and images.shape[1] not in (1, 2, 3):
        raise ShapeError(
            f"images: expected [N, C, H, W], got {images.shape} (channels last; use images.transpose(0, 3, 1, 2))"
        )
    if images.dtype == np.uint8:
        # A copy, so that nobody else's array changes with ours, and in order, as torch needs it.
        return np.array(images, order="C")
    if images.dtype.kind != "f":
        raise DataError(f"images: expected bytes, or floats in [0, 1], got {images.dtype}")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(f"images: expected floats in [0, 1], got values from {images.min():g} to {images.max():g}")
    return np.rint(images * 255).astype(np.uint8)
