"""smallNORB: 50 toys of five classes, photographed in stereo from 9 elevations and 18 azimuths under 6 lightings.

LeCun, Huang, Bottou 2004. Five toys of each class are for training, 24,300 stereo pairs of 96x96, the other five for
testing. A pair is one image of two channels. `meta` has `instance` (the toy, 0 to 9), `elevation` (0 to 8: 30 to 70
degrees in steps of 5), `azimuth` (0 to 34: tens of degrees) and `lighting` (0 to 5); -1 where a copy lacks the value.

The standard protocol has the splits `train`, `val`, `test`. In the protocols of Hinton et al. 2018 for new viewpoints
(`viewpoint=`), the training split has a third of them: azimuths 300 to 40 degrees, or the three lowest elevations.
`familiar` has the test toys from these viewpoints, `novel` those from all others, `test` both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import complement, sample_per_class
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.norb_matrix import matrix_chunks, read_matrix
from torchcaps.data.registry import DATASETS, SPLITS, DatasetEntry
from torchcaps.data.transforms import shrink
from torchcaps.errors import ConfigError, DataError

CLASS_NAMES = ("animal", "human", "plane", "truck", "car")
FAMILIAR = {"azimuth": (30, 32, 34, 0, 2, 4), "elevation": (0, 1, 2)}

Viewpoint = Literal["azimuth", "elevation"]
Validation = Literal["random", "instance", "none"]

_STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
_MIRRORS = ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/", "https://cs.nyu.edu/~yann/data/norb-v1.0-small/")
_SHA256 = {
    ("train", "dat"): "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873",
    ("train", "cat"): "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa",
    ("train", "info"): "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32",
    ("test", "dat"): "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474",
    ("test", "cat"): "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff",
    ("test", "info"): "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2",
}
_INFO = ("instance", "elevation", "azimuth", "lighting")
_SIDE = 96
_SEED = 2004
# Test toys that replace the training toys if the training azimuths are unknown.
_STAND_IN = (0, 1, 2)


def load_smallnorb(
    split: str, *, image_size: int = 48, val: Validation = "random", viewpoint: Viewpoint | None = None
) -> ImageDataset:
    """Load one split of smallNORB.

    The azimuth protocol needs azimuths. If the training files of a copy have none, the protocol uses the test files,
    with toys 0, 1, 2 for training and 3, 5 for testing, and `origin` says so.

    Args:
        split: `train`, `val`, `test` or `train+val`; with `viewpoint` also `familiar` and `novel`.
        image_size: Side of the images, a divisor of 96; pixels are averaged over blocks (the papers use 48).
        val: `random` holds out a tenth of the images of every training toy; `instance` holds out one toy of each
            class, which measures generalisation to new toys as the test does; `none` trains on all images.
        viewpoint: `azimuth` or `elevation` for the protocol of new viewpoints; the default is the standard protocol.

    Returns:
        The images, uint8 [N, 2, image_size, image_size], labels, and `meta`.

    Raises:
        ConfigError: If an option does not exist or does not fit the split.
        DataError: If a file is missing or damaged.

    Example:
        >>> load_smallnorb("test")[0]  # doctest: +SKIP
    """
    _check_options(split, image_size, val, viewpoint)
    files = "test" if split in ("test", "familiar", "novel") else "train"
    testing = files == "test"
    origin, labels, meta = _read_labels(files)
    if viewpoint == "azimuth" and _azimuths_unknown():
        files = "test"
        origin, labels, meta = _read_labels(files)
        chosen = torch.isin(meta["instance"], torch.tensor(_STAND_IN)) != testing  # [N]
        origin += " (training azimuths unknown: test toys 0, 1, 2 for training, 3 and 5 for testing)"
    else:
        chosen = torch.ones(len(labels), dtype=torch.bool)
    if viewpoint is not None and split != "test":
        familiar = torch.isin(meta[viewpoint], torch.tensor(FAMILIAR[viewpoint]))  # [N]
        chosen &= familiar != (split == "novel")
    indices = chosen.nonzero().squeeze(1)  # [n]
    if split in ("train", "val"):
        held_out = _held_out(labels[indices], meta["instance"][indices], val)
        indices = indices[held_out if split == "val" else complement(held_out, len(indices))]
    return InMemoryDataset(
        name="smallnorb",
        split=split,
        images=_read_images(files, indices, len(labels), image_size),  # [n, 2, H, W]
        labels=labels[indices],  # [n]
        class_names=CLASS_NAMES,
        origin=origin,
        meta={name: values[indices] for name, values in meta.items()},
    )


def _check_options(split: str, image_size: int, val: str, viewpoint: str | None) -> None:
    if image_size < 1 or _SIDE % image_size:
        raise ConfigError(f"image_size: expected a divisor of {_SIDE}, got {image_size!r}")
    if val not in get_args(Validation):
        raise ConfigError(f"val: expected one of {', '.join(get_args(Validation))}, got {val!r}")
    if viewpoint is not None and viewpoint not in FAMILIAR:
        raise ConfigError(f"viewpoint: expected one of {', '.join(FAMILIAR)}, got {viewpoint!r}")
    if viewpoint is None and split in ("familiar", "novel"):
        raise ConfigError(f"viewpoint: expected one of {', '.join(FAMILIAR)} for the split '{split}', got None")


def check_norb(path: Path, file: DataFile) -> None:
    """Read a matrix in chunks: images, classes or viewpoints, by its name."""
    dtype, axes = ("u1", 4) if "-dat" in file.name else ("<i4", 2 if "-info" in file.name else 1)
    for _ in matrix_chunks(path, dtype, axes, rows=512):
        pass


SOURCE = Source(
    folder="smallnorb",
    files=tuple(DataFile(f"{_STEMS[subset]}-{kind}.mat.gz", sha256) for (subset, kind), sha256 in _SHA256.items()),
    check=check_norb,
    home=_MIRRORS[0],
    mirrors=_MIRRORS,
)


def _find(subset: str, kind: str) -> Path:
    return obtain(SOURCE.files[list(_SHA256).index((subset, kind))], SOURCE)


def _read_labels(subset: str) -> tuple[str, Tensor, dict[str, Tensor]]:
    path, info_path = _find(subset, "cat"), _find(subset, "info")
    labels = torch.from_numpy(read_matrix(path, "<i4", 1).astype(np.int64))  # [N]
    info = torch.from_numpy(read_matrix(info_path, "<i4", 2).astype(np.int64))  # [N, 4]
    if info.shape != (len(labels), len(_INFO)):
        raise DataError(
            f"{info_path}: expected {len(labels)} x {len(_INFO)} values, one row per label, got "
            f"{' x '.join(map(str, info.shape))}; download it again"
        )
    return str(path.parent), labels, dict(zip(_INFO, info.unbind(1), strict=True))


def _azimuths_unknown() -> bool:
    return bool((_read_labels("train")[2]["azimuth"] < 0).any())


def _read_images(subset: str, indices: Tensor, total: int, image_size: int) -> Tensor:
    path, start, filled = _find(subset, "dat"), 0, 0
    needed = torch.zeros(total, dtype=torch.bool)
    needed[indices] = True
    images = torch.empty(len(indices), 2, image_size, image_size, dtype=torch.uint8)
    # Each chunk is selected and reduced before the next is read.
    for chunk in matrix_chunks(path, "u1", 4, rows=512):
        mask = needed[start : start + len(chunk)].numpy()
        kept = shrink(torch.from_numpy(chunk[: len(mask)][mask]), image_size)
        images[filled : filled + len(kept)] = kept
        start += len(chunk)
        filled += len(kept)
    if start != total:
        raise DataError(f"{path}: expected {total} images, one per label, got {start}; download it again")
    return images


def _held_out(labels: Tensor, instances: Tensor, val: Validation) -> Tensor:
    if val == "none":
        return torch.empty(0, dtype=torch.long)
    if val == "instance":
        return (instances == instances.max()).nonzero().squeeze(1)
    toys = labels * 10 + instances
    return sample_per_class(toys, (toys.bincount() // 10).tolist(), _SEED)


DATASETS.add(
    "smallnorb",
    DatasetEntry(
        description="stereo images of toys in five classes: 24,300 train+val, 24,300 test, 2x96x96, with viewpoints",
        source="Yann LeCun, Fu Jie Huang, Leon Bottou 2004: the small NORB dataset",
        licence="research use only",
        load=load_smallnorb,
        sources=(SOURCE,),
        splits=(*SPLITS, "familiar", "novel"),
    ),
)
