"""The protocol of all image data sets: ordinary map-style datasets of PyTorch, with batches of bytes beside them."""

from __future__ import annotations

import copy
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.data._order import Order, shuffled_order
from torchcaps.data.transforms import crop
from torchcaps.errors import DataError, ShapeError

Sample = tuple[Any, int | Tensor]
Transform = Callable[[Tensor], Any]
# Batch size where a whole data set is read.
_READ_SIZE = 1024
_NO_INDICES = torch.empty(0, dtype=torch.int64)


class Batch(NamedTuple):
    """Images of a data set with everything that is known about them.

    Attributes:
        images: Pixels, uint8 [B, C, H, W]; signals are float32 [B, C, T], volumes uint8 [B, C, D, H, W].
        labels: Class indices, int64 [B], or [B, 2] for images of two objects.
        sources: For images of two objects, each object alone, uint8 [B, 2, C, H, W]; else None.
        meta: Further values per image, each [B].
    """

    images: Tensor
    labels: Tensor
    sources: Tensor | None
    meta: dict[str, Tensor]

    def cropped(self, size: int) -> Batch:
        """Return the batch with images and sources cropped to their centre.

        Args:
            size: Height and width after cropping.

        Returns:
            The cropped batch.
        """
        sources = None if self.sources is None else crop(self.sources, size)
        return self._replace(images=crop(self.images, size), sources=sources)


class ImageDataset(Dataset[Sample], ABC):
    """One split of an image data set, a map-style `torch.utils.data.Dataset`.

    `data[i]` is `(image, label)`: a float32 image [C, H, W] in [0, 1] and an int label, or an int64 label tensor [2]
    for images of two objects. `torch.utils.data.DataLoader`, `Subset` and `random_split` accept it as any other
    dataset. A slice `data[a:b]` is a data set. `batch` and `batches` give many images at once as bytes.

    `InMemoryDataset`, `GeneratedDataset` and `ShardedDataset` implement it.

    Args:
        name: Name of the data set.
        split: Name of the split.
        class_names: Name of each class, in the order of the class indices.
        origin: Where the images come from, for reports.

    Attributes:
        transform: Applied to the float image of `data[i]`, or None. `batch` and `BatchLoader` do not use it.

    Example:
        >>> from torchcaps.data import load_data
        >>> image, label = load_data("digits", "test")[0]
        >>> image.shape, image.dtype, label
        (torch.Size([1, 28, 28]), torch.float32, 9)
    """

    def __init__(self, name: str, split: str, class_names: Sequence[str], origin: str) -> None:
        self.name = name
        self.split = split
        self.class_names = tuple(class_names)
        self.origin = origin
        self.transform: Transform | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image; (channels, length) of a signal, three sides of a volume."""

    @property
    @abstractmethod
    def labels(self) -> Tensor:
        """Class indices of all images, int64 [N] or [N, 2]."""

    @property
    @abstractmethod
    def meta(self) -> dict[str, Tensor]:
        """Further values per image (a viewpoint, an instance), each [N]."""

    @abstractmethod
    def read(self, indices: Tensor) -> Batch:
        """Return some images, in the given order.

        Args:
            indices: Numbers of the images, int64 [n] in 0 to N - 1.

        Returns:
            The images with labels and everything that is known about them.
        """

    @abstractmethod
    def select(self, indices: Tensor) -> ImageDataset:
        """Return the data set of some images, in the given order.

        Args:
            indices: Numbers of the images, int64 [n] in 0 to N - 1.

        Returns:
            The data set.
        """

    @abstractmethod
    def cropped(self, size: int) -> ImageDataset:
        """Return the data set with every image cropped to its centre.

        Args:
            size: Height and width after cropping.

        Returns:
            The data set.
        """

    @property
    def num_classes(self) -> int:
        """Number of classes, including those without an image in this split."""
        return len(self.class_names)

    @property
    def num_labels(self) -> int:
        """Number of labels per image: 1, or 2 where labels are [N, 2]."""
        return 1

    @property
    def in_memory(self) -> bool:
        """Whether all images are stored in memory, so that reading them costs nothing."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the stored images take."""
        return 0

    @property
    def images(self) -> Tensor:
        """All images at once, uint8 [N, C, H, W]; a large data set that is not in memory may not fit."""
        empty = torch.empty(0, *self.image_shape, dtype=torch.uint8)
        return torch.cat([empty, *(batch.images for batch in self.batches(_READ_SIZE))])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            chosen = range(*index.indices(len(self)))
            # torch.arange refuses a range whose step leads away from its end.
            return self.select(torch.arange(chosen.start, chosen.stop, chosen.step) if chosen else _NO_INDICES)
        try:
            place = operator.index(index)
        except TypeError:
            raise TypeError(
                f"index: expected an int or a slice, got {type(index).__name__} (use data.subset(indices))"
            ) from None
        if not -len(self) <= place < len(self):
            raise IndexError(f"index: expected {-len(self)} to {len(self) - 1}, got {place} ('{self.name}')")
        return self.__getitems__([place % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples at these indices; `DataLoader` reads a whole batch by it."""
        batch = self.batch(indices)
        images = to_float(batch.images).unbind()
        samples = images if self.transform is None else map(self.transform, images)
        labels = batch.labels.tolist() if batch.labels.dim() == 1 else batch.labels.unbind()
        return list(zip(samples, labels, strict=True))

    def batch(self, indices: Tensor | Sequence[int]) -> Batch:
        """Return the images at these indices, in this order, or those where a boolean mask [N] is true.

        Args:
            indices: Indices [n], negative ones count from the end, or a boolean mask [N].

        Returns:
            The images as bytes, with labels, sources and meta.

        Raises:
            DataError: If an index is out of range.
            ShapeError: If the indices are not one-dimensional, or a mask has another length.
        """
        return self.read(self._indices(indices))

    def subset(self, indices: Tensor | Sequence[int]) -> ImageDataset:
        """Return the data set of the images at these indices, in this order, or where a boolean mask [N] is true.

        Args:
            indices: Indices [n], negative ones count from the end, or a boolean mask [N].

        Returns:
            A data set of the same classes.

        Raises:
            DataError: If an index is out of range.
            ShapeError: If the indices are not one-dimensional, or a mask has another length.

        Example:
            >>> from torchcaps.data import load_data
            >>> data = load_data("digits", "test")
            >>> len(data.subset(data.labels == 7))
            100
        """
        return self.select(self._indices(indices))

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Iterate over all images in order, `batch_size` images at a time.

        Args:
            batch_size: Number of images per batch; the last batch may hold fewer.

        Yields:
            The batches.
        """
        for start in range(0, len(self), batch_size):
            yield self.read(torch.arange(start, min(start + batch_size, len(self))))

    def evenly_spaced(self, count: int) -> ImageDataset:
        """Return images at even distances from the first to the last.

        Args:
            count: Number of images; all if there are not more.

        Returns:
            The data set.
        """
        return self if len(self) <= count else self.select(torch.arange(count) * len(self) // count)

    def with_transform(self, transform: Transform | None) -> Self:
        """Return the data set with a callable that `data[i]` applies to each float image [C, H, W].

        Args:
            transform: A callable such as a torchvision transform that takes tensors, or None for none.

        Returns:
            A data set that shares its images with this one.

        Example:
            >>> from torchcaps.data import load_data
            >>> load_data("digits", "test").with_transform(torch.flatten)[0][0].shape
            torch.Size([784])
        """
        return self._copied(transform=transform)

    def renamed(self, name: str, split: str) -> Self:
        """Return the data set under another name and split; it shares its images with this one.

        Args:
            name: New name.
            split: New split.

        Returns:
            The data set.
        """
        return self._copied(name=name, split=split)

    def shuffled_order(self, seed: int) -> Order:
        """Return the order of one shuffled pass.

        Args:
            seed: Seed, which alone decides the order.

        Returns:
            The order.
        """
        return shuffled_order(seed, len(self))

    def _copied(self, **attributes: Any) -> Self:
        other = copy.copy(self)
        for name, value in attributes.items():
            setattr(other, name, value)
        return other

    def _indices(self, indices: Tensor | Sequence[int]) -> Tensor:
        """Return indices or a mask as indices [n] in 0 to N - 1."""
        at = torch.as_tensor(indices)
        if at.dim() != 1 or (at.dtype == torch.bool and len(at) != len(self)):
            raise ShapeError(
                f"indices: expected [n], or a mask [{len(self)}], got {at.dtype} {tuple(at.shape)} ('{self.name}')"
            )
        # An empty list becomes a float tensor.
        if len(at) and at.is_floating_point():
            raise ShapeError(f"indices: expected integers, got {at.dtype} ('{self.name}')")
        at = at.nonzero().squeeze(1) if at.dtype == torch.bool else at.to(torch.int64)
        if len(at) and not -len(self) <= int(at.min()) <= int(at.max()) < len(self):
            raise DataError(
                f"indices: expected {-len(self)} to {len(self) - 1}, got {int(at.min())} to {int(at.max())} "
                f"('{self.name}')"
            )
        return torch.where(at < 0, at + len(self), at)


def to_float(images: Tensor) -> Tensor:
    """Convert bytes to float32 in [0, 1], the input of models and augmentation.

    Args:
        images: Pixels of any shape, uint8, or signals, float32.

    Shape:
        images of any shape; returns float32 of the same shape.

    Returns:
        The pixels divided by 255, float32; signals are returned as they are.

    Raises:
        ShapeError: If the values are neither uint8 nor float32.

    Example:
        >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([0., 1.])
    """
    if images.dtype == torch.float32:
        return images
    if images.dtype != torch.uint8:
        raise ShapeError(f"images: expected uint8 or float32, got {images.dtype}")
    return images.to(torch.float32).div_(255)
