"""Datasets and DataLoaders of your own as the data of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchcaps.data import Augment, ImageDataset, to_float
from torchcaps.data.dataset import Batch
from torchcaps.data.loader import mix_seed
from torchcaps.data.transforms import crop
from torchcaps.errors import ConfigError, DataError, ShapeError
from torchcaps.train.recipe import OWN, DataRecipe, Recipe

OwnData = Mapping[str, "Dataset[Any] | DataLoader[Any]"]


class DatasetView(ImageDataset):
    """A map-style dataset of `(image, label)` pairs as an `ImageDataset`; images are read when they are used.

    Args:
        dataset: Images [C, H, W] or [H, W], tensors or arrays, as bytes or as floats in [0, 1], with their labels.
            Floats are rounded to bytes. An item is the same whenever it is read.
        split: Name of the split.
        class_names: Name of each class; by default `dataset.classes`, or the class indices.

    Raises:
        DataError: If the dataset is not map-style, or its items are not pairs.

    Example:
        >>> pairs = [(torch.zeros(1, 8, 8), 0), (torch.ones(1, 8, 8), 1)]
        >>> view = DatasetView(pairs, "train")
        >>> view.image_shape, view.num_classes, view.images.max()
        ((1, 8, 8), 2, tensor(255, dtype=torch.uint8))
    """

    def __init__(self, dataset: Any, split: str, class_names: Sequence[str] | None = None) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise DataError(f"data['{split}']: expected a map-style Dataset, got {type(dataset).__name__}")
        self.dataset = dataset
        self._indices_of = torch.arange(len(dataset))  # [N]
        self._all_labels = _read_labels(dataset, split)  # [N]
        self._shape = tuple(_to_bytes(dataset[0][0]).shape) if len(dataset) else (1, 1, 1)
        if class_names is None:
            count = int(self._all_labels.max()) + 1 if len(dataset) else 0
            class_names = tuple(map(str, getattr(dataset, "classes", range(count))))
        super().__init__(OWN, split, class_names, f"{type(dataset).__name__} of the caller")
        if len(dataset) and not 0 <= int(self._all_labels.min()) <= int(self._all_labels.max()) < self.num_classes:
            raise DataError(
                f"data['{split}']: expected labels from 0 to {self.num_classes - 1}, got "
                f"{int(self._all_labels.min())} to {int(self._all_labels.max())}"
            )

    def __len__(self) -> int:
        return len(self._indices_of)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self._shape
        return channels, height, width

    @property
    def labels(self) -> Tensor:
        """Class indices of all images, int64 [N]."""
        return self._all_labels[self._indices_of]

    @property
    def meta(self) -> dict[str, Tensor]:
        """Empty."""
        return {}

    def read(self, indices: Tensor) -> Batch:
        """Return some images, in the given order.

        Args:
            indices: Numbers of the images, int64 [n] in 0 to N - 1.

        Returns:
            The images as bytes, with their labels.
        """
        chosen = self._indices_of[indices]
        images = [_to_bytes(self.dataset[place][0]) for place in chosen.tolist()]
        stacked = torch.stack(images) if images else torch.empty(0, *self._shape, dtype=torch.uint8)  # [n, C, H, W]
        if stacked.shape[-2:] != self._shape[-2:]:
            stacked = crop(stacked, self._shape[-1])
        return Batch(stacked, self._all_labels[chosen], None, {})

    def select(self, indices: Tensor) -> DatasetView:
        """Return the data set of some images, in the given order.

        Args:
            indices: Numbers of the images, int64 [n] in 0 to N - 1.

        Returns:
            The data set.
        """
        return self._copied(_indices_of=self._indices_of[indices])

    def cropped(self, size: int) -> DatasetView:
        """Return the data set with every image cropped to its centre.

        Args:
            size: Height and width after cropping.

        Returns:
            The data set.
        """
        return self._copied(_shape=(self._shape[0], size, size))


def _read_labels(dataset: Any, split: str) -> Tensor:
    """Return the labels of a dataset [N]: its `targets`, or those of its items."""
    labels = getattr(dataset, "targets", None)
    try:
        if labels is None or len(labels) != len(dataset):
            labels = [int(label) for _, label in (dataset[place] for place in range(len(dataset)))]
        return torch.as_tensor(labels, dtype=torch.int64).reshape(len(dataset))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"data['{split}']: expected items (image, label) with one label, got {error}") from None


def _to_bytes(image: Any) -> Tensor:
    """Return an image as bytes, uint8 [C, H, W]."""
    pixels = torch.as_tensor(np.asarray(image) if not isinstance(image, Tensor) else image)
    pixels = pixels.unsqueeze(0) if pixels.dim() == 2 else pixels
    if pixels.dim() != 3:
        raise ShapeError(f"image: expected [C, H, W] or [H, W], got {tuple(pixels.shape)}")
    if pixels.dtype == torch.uint8:
        return pixels
    if not pixels.is_floating_point() or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise DataError(
            f"image: expected bytes, or floats in [0, 1], got {pixels.dtype} from {pixels.min():g} to {pixels.max():g}"
        )
    return pixels.mul(255).round().to(torch.uint8)


class LoaderBatches:
    """The batches of a DataLoader, in an order that depends on the seed and the epoch alone, so that a run resumes.

    torch's generator is seeded before each batch. A resumed epoch reads the batches before its position once more.

    Args:
        loader: A DataLoader that gives `(images, labels)`.
        seed: Seed of order and augmentation.
        rank: Index of this process.
        world: Number of processes; each one takes its slice of every batch.

    Raises:
        ConfigError: If the loader cannot be resumed, or its batches cannot be divided among the processes.

    Example:
        >>> pairs = [(torch.full((1, 2, 2), float(n)), n) for n in range(6)]
        >>> batches = LoaderBatches(DataLoader(pairs, batch_size=2, shuffle=True), seed=0)
        >>> first = [labels.tolist() for _, labels in batches]
        >>> batches.load_state_dict({"epoch": 0, "position": 2})
        >>> [labels.tolist() for _, labels in batches] == first[2:]
        True
    """

    def __init__(self, loader: DataLoader[Any], seed: int, rank: int = 0, world: int = 1) -> None:
        if loader.persistent_workers:
            raise ConfigError("data: expected a DataLoader with persistent_workers=False, got True (it cannot resume)")
        if world > 1 and ((loader.batch_size or 1) % world or not loader.drop_last):
            raise ConfigError(
                f"data: expected a DataLoader with drop_last=True and a batch_size that is a multiple of the {world} "
                f"processes, got drop_last={loader.drop_last} and batch_size={loader.batch_size}"
            )
        self.loader = loader
        self.seed = seed
        self.rank = rank
        self.world = world
        self.epoch = 0
        self._position = 0
        self._restored = False

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._position and not self._restored:
            self.epoch, self._position = self.epoch + 1, 0
        self._restored = False
        for generator in (self.loader.generator, getattr(self.loader.sampler, "generator", None)):
            if generator is not None:
                generator.manual_seed(mix_seed(self.seed, self.epoch))
        torch.manual_seed(mix_seed(self.seed, self.epoch))
        batches, start = iter(self.loader), self._position
        for number in range(len(self)):
            torch.manual_seed(mix_seed(self.seed, self.epoch, number))
            images, labels = next(batches)
            if number >= start:
                self._position += 1
                own = slice(self.rank * len(labels) // self.world, (self.rank + 1) * len(labels) // self.world)
                yield (to_float(images) if images.dtype == torch.uint8 else images)[own], labels[own]

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the epoch and the number of batches of it that were given out."""
        return {"epoch": self.epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration at a position that `state_dict` returned.

        Args:
            state: The position.
        """
        self.epoch, self._position, self._restored = state["epoch"], state["position"], True


def view_data(data: OwnData) -> dict[str, ImageDataset]:
    """Return the splits of a run from datasets of the caller.

    Args:
        data: A Dataset or DataLoader for each of `train`, `test` and, unless all images are to be trained on, `val`.

    Returns:
        The splits; of a DataLoader its dataset.

    Raises:
        ConfigError: If a split is missing or unknown.
        DataError: If shapes or classes differ.
    """
    if not {"train", "test"} <= set(data) <= {"train", "val", "test"}:
        raise ConfigError(f"data: expected the splits train, test and perhaps val, got {', '.join(map(str, data))}")
    datasets = {split: each.dataset if isinstance(each, DataLoader) else each for split, each in data.items()}
    train = datasets["train"]
    splits = {"train": train if isinstance(train, ImageDataset) else DatasetView(train, "train")}
    names, shape = splits["train"].class_names, splits["train"].image_shape
    for split in ("val", "test"):
        given = datasets.get(split, splits["train"].subset([]))
        splits[split] = given if isinstance(given, ImageDataset) else DatasetView(given, split, names)
        if len(splits[split]) and (splits[split].image_shape, splits[split].class_names) != (shape, names):
            found = splits[split]
            raise DataError(
                f"data['{split}']: expected images {shape} of {len(names)} classes as in train, got "
                f"{found.image_shape} of {found.num_classes} classes"
            )
    return splits


def own_recipe(recipe: Recipe, data: OwnData) -> Recipe:
    """Return a recipe whose data are those of the caller.

    Args:
        recipe: The recipe.
        data: The splits.

    Returns:
        The recipe with the data set `own`. The batches of a DataLoader are used as they are: their size becomes that
        of the recipe, and its augmentation, sampler and epoch size do not apply.
    """
    train = data.get("train")
    if isinstance(train, DataLoader):
        # Raises for a loader that cannot be resumed.
        LoaderBatches(train, recipe.seed, world=recipe.trainer.devices)
        return replace(recipe, data=DataRecipe(OWN, batch_size=train.batch_size or 1, augment=Augment()))
    return replace(recipe, data=replace(recipe.data, name=OWN, options={}))
