"""dSprites: squares, ellipses and hearts at all combinations of scale, orientation and position.

Matthey, Higgins, Hassabis, Lerchner 2017: 737,280 binary images of 64x64, in the order of their factors. The shape is
the class. `meta` has `scale` (0.5 to 1), `orientation` in degrees, `symmetry` (the number of orientations of a full
turn that look the same: 4 for squares, 2 for ellipses, 1 for hearts), `x` and `y` (0 to 1).

All images take 3 GB. They are read as a stream, and only some positions are kept.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import complement, held_out_indices
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.npz import npz_chunks
from torchcaps.data.registry import DATASETS, DatasetEntry
from torchcaps.data.transforms import shrink
from torchcaps.errors import ConfigError

CLASS_NAMES = ("square", "ellipse", "heart")
_SYMMETRY = (4, 2, 1)
# Number of values of shape, scale, orientation, x and y; the last one changes fastest.
FACTORS = (3, 6, 40, 32, 32)
_SIDE, _SEED = 64, 2017


def check_dsprites(path: Path, file: DataFile) -> None:
    """Read all images in chunks."""
    for _ in npz_chunks(path, "imgs", (int(np.prod(FACTORS)), _SIDE, _SIDE)):
        pass


SOURCE = Source(
    folder="dsprites",
    files=(
        DataFile(
            "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz",
            md5="7da33b31b13a06f4b04a70402ce90c2e",
            max_bytes=30_000_000,
        ),
    ),
    check=check_dsprites,
    home="https://github.com/google-deepmind/dsprites-dataset",
    mirrors=("https://github.com/google-deepmind/dsprites-dataset/raw/master/",),
)


def load_dsprites(split: str, *, stride: int = 5, image_size: int = 64) -> ImageDataset:
    """Load one split of a part of dSprites.

    Args:
        split: `train`, `val`, `test` or `train+val`: a tenth of the images for `val`, a fifth for `test`, at random.
        stride: Step between the values of x and y that are kept; 5 keeps 7 x 7 of 32 x 32 positions, 35,280 images.
        image_size: Side of the images, a divisor of 64; pixels are averaged over blocks.

    Returns:
        The images, uint8 [N, 1, image_size, image_size] of 0 to 255, labels, and `meta`.

    Raises:
        ConfigError: If an option is out of range.
        DataError: If the file is missing or damaged.

    Example:
        >>> load_dsprites("test")[0]  # doctest: +SKIP
    """
    if not 2 <= stride <= 31:
        raise ConfigError(f"stride: expected 2 to 31, got {stride!r} (all positions take 3 GB)")
    if image_size < 1 or _SIDE % image_size:
        raise ConfigError(f"image_size: expected a divisor of {_SIDE}, got {image_size!r}")
    path = obtain(SOURCE.files[0], SOURCE)
    numbers, images = _read(path, path.stat().st_mtime_ns, stride, image_size)
    factors = np.stack(np.unravel_index(numbers.numpy(), FACTORS))  # [5, N]
    shape, scale, turn, x, y = torch.from_numpy(factors)
    chosen = _split(shape, split)  # [n]
    meta = {
        "scale": 0.5 + 0.1 * scale,
        # The first and the last orientation are the same angle.
        "orientation": turn * (360 / (FACTORS[2] - 1)),
        "symmetry": torch.tensor(_SYMMETRY)[shape],
        "x": x / (FACTORS[3] - 1),
        "y": y / (FACTORS[4] - 1),
    }
    meta = {name: values[chosen] for name, values in meta.items()}
    return InMemoryDataset("dsprites", split, images[chosen], shape[chosen], CLASS_NAMES, str(path.parent), meta)


@lru_cache(maxsize=1)
def _read(path: Path, changed: int, stride: int, image_size: int) -> tuple[Tensor, Tensor]:
    """Return the numbers [N] and the images [N, 1, H, W] at every `stride`-th position."""
    total = int(np.prod(FACTORS))
    *_, x, y = np.unravel_index(np.arange(total), FACTORS)
    kept = torch.from_numpy((x % stride == 0) & (y % stride == 0))  # [total]
    images, start, filled = torch.empty(int(kept.sum()), 1, image_size, image_size, dtype=torch.uint8), 0, 0
    for chunk in npz_chunks(path, "imgs", (total, _SIDE, _SIDE)):
        here = 255 * torch.from_numpy(chunk)[kept[start : start + len(chunk)]].clamp(max=1).unsqueeze(1)
        images[filled : filled + len(here)] = shrink(here, image_size)
        start, filled = start + len(chunk), filled + len(here)
    return kept.nonzero().squeeze(1), images


def _split(labels: Tensor, split: str) -> Tensor:
    tested = held_out_indices(labels, len(labels) // 5, len(CLASS_NAMES), _SEED)
    if split == "test":
        return tested
    rest = complement(tested, len(labels))
    held_out = held_out_indices(labels[rest], len(labels) // 10, len(CLASS_NAMES), _SEED)
    return {"train+val": rest, "val": rest[held_out]}.get(split, rest[complement(held_out, len(rest))])


DATASETS.add(
    "dsprites",
    DatasetEntry(
        description="three shapes in all scales and orientations, at some positions: 35,280 images, 64x64 binary",
        source="Loic Matthey, Irina Higgins, Demis Hassabis, Alexander Lerchner 2017: dSprites",
        licence="Apache 2.0",
        load=load_dsprites,
        sources=(SOURCE,),
    ),
)
