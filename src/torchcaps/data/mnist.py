"""MNIST and Fashion-MNIST: 60,000 + 10,000 grey images of 28x28 in ten classes, in idx files.

The validation split is held out of the training images, stratified by class and always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data._package_mirrors import DEBIAN_FASHION_MNIST, MNIST_WHEEL
from torchcaps.data._sources import DataFile, Package, Source, find_local, obtain
from torchcaps.data._split import split_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.idx import read_idx
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.errors import DataError

_SEED = 1998


@dataclass(frozen=True)
class IdxSet:
    """A data set of four idx files: images and labels for training and for testing."""

    name: str
    folder: str
    mirrors: tuple[str, ...]
    class_names: tuple[str, ...]
    train: tuple[DataFile, DataFile]
    test: tuple[DataFile, DataFile]
    home: str = ""
    packages: tuple[Package, ...] = ()

    @property
    def source(self) -> Source:
        """The files and where they are downloaded from."""
        files = (*self.train, *self.test)
        return Source(self.folder, files, check_idx, self.home, self.mirrors, packages=self.packages)


def check_idx(path: Path, file: DataFile) -> Tensor:
    """Read an idx file: images or labels, by its name."""
    return read_idx(path, 3 if "images" in file.name else 1, file.content_sha256 or None)


MNIST = IdxSet(
    name="mnist",
    folder="mnist",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    class_names=tuple("0123456789"),
    home="http://yann.lecun.com/exdb/mnist/",
    packages=(MNIST_WHEEL,),
    train=(
        DataFile(
            "train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        DataFile(
            "train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    test=(
        DataFile(
            "t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        DataFile(
            "t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
)

FASHION_MNIST = IdxSet(
    name="fashion_mnist",
    folder="fashion-mnist",
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    class_names=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    home="https://github.com/zalandoresearch/fashion-mnist",
    packages=(DEBIAN_FASHION_MNIST,),
    train=(
        DataFile(
            "train-images-idx3-ubyte.gz",
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        DataFile(
            "train-labels-idx1-ubyte.gz",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
    ),
    test=(
        DataFile(
            "t10k-images-idx3-ubyte.gz",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        DataFile(
            "t10k-labels-idx1-ubyte.gz",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
)


def read_idx_pair(source: IdxSet, subset: str, folders: Sequence[Path] | None = None) -> tuple[Tensor, Tensor, str]:
    """Read the `train` or `test` files: images uint8 [N, H, W], labels uint8 [N], and their folder.

    Without `folders` the files are searched in the data folders, and downloaded if they are missing.

    Args:
        source: Names and checksums of the files.
        subset: `train` or `test`.
        folders: Folders to search.

    Returns:
        Images, labels and folder.
    """
    tensors, path = [], Path()
    for file in source.test if subset == "test" else source.train:
        found = find_local(file.name, folders) if folders else obtain(file, source.source)
        if found is None:
            raise DataError(
                f"{file.name}: expected it in {' or '.join(map(str, folders or ()))}, but there is no such file"
            )
        tensors.append(check_idx(found, file))
        path = found
    images, labels = tensors
    check_counts(path, images, labels)
    return images, labels, str(path.parent)


def check_counts(path: Path, images: Tensor, labels: Tensor) -> None:
    """Raise a DataError unless there is one label per image; `path` is the file of the labels.

    Args:
        path: File of the labels.
        images: Images [N, ...].
        labels: Labels [N].
    """
    if len(images) != len(labels):
        raise DataError(
            f"{path}: expected {len(images)} labels, one per image, got {len(labels)}; download both files again"
        )


def load_idx_set(source: IdxSet, split: str, val_size: int) -> ImageDataset:
    """Load one split of a data set of four idx files.

    Args:
        source: Names and checksums of the files.
        split: Name of the split.
        val_size: Images that are held out for validation.

    Returns:
        The split.
    """
    images, labels, origin = read_idx_pair(source, "test" if split == "test" else "train")
    labels = labels.to(torch.int64)  # [N]
    indices = split_indices(labels, split, val_size, len(source.class_names), _SEED)
    images = images.unsqueeze(1)  # [N, 1, H, W]
    return InMemoryDataset(source.name, split, images[indices], labels[indices], source.class_names, origin)


def load_mnist(split: str, *, val_size: int = 5000) -> ImageDataset:
    """Load one split of MNIST.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        val_size: Number of the 60,000 training images in the validation split.

    Returns:
        The images, uint8 [N, 1, 28, 28], and labels.

    Raises:
        DataError: If a file is missing or damaged.

    Example:
        >>> load_mnist("test")[0]  # doctest: +SKIP
    """
    return load_idx_set(MNIST, split, val_size)


def load_fashion_mnist(split: str, *, val_size: int = 5000) -> ImageDataset:
    """Load one split of Fashion-MNIST.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        val_size: Number of the 60,000 training images in the validation split.

    Returns:
        The images, uint8 [N, 1, 28, 28], and labels.

    Raises:
        DataError: If a file is missing or damaged.

    Example:
        >>> load_fashion_mnist("test")[0]  # doctest: +SKIP
    """
    return load_idx_set(FASHION_MNIST, split, val_size)


DATASETS.add(
    "mnist",
    DatasetEntry(
        description="handwritten digits: 55,000 train, 5,000 val, 10,000 test, 28x28 grey",
        source="Yann LeCun, Corinna Cortes, Christopher Burges: The MNIST database of handwritten digits",
        licence="CC BY-SA 3.0",
        load=load_mnist,
        sources=(MNIST.source,),
    ),
)
DATASETS.add(
    "fashion_mnist",
    DatasetEntry(
        description="clothes in ten classes: 55,000 train, 5,000 val, 10,000 test, 28x28 grey",
        source="Han Xiao, Kashif Rasul, Roland Vollgraf 2017: Fashion-MNIST (Zalando Research)",
        licence="MIT",
        load=load_fashion_mnist,
        sources=(FASHION_MNIST.source,),
    ),
)
