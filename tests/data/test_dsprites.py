from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from raising import raises_about
from torchcaps.data import dsprites, load_data
from torchcaps.errors import ConfigError, DataError

NAME = dsprites.SOURCE.files[0].name
FEW = (3, 2, 3, 4, 4)


def write(folder: Path, images: np.ndarray, cut: int | None = None) -> None:
    file = io.BytesIO()
    np.save(file, images)
    (folder / "dsprites").mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "dsprites" / NAME, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("imgs.npy", file.getvalue()[:cut])


@pytest.fixture
def images(own_data: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Images of fewer factors, each with one block of ones at its own place."""
    monkeypatch.setattr(dsprites, "FACTORS", FEW)
    total = int(np.prod(FEW))
    made = np.zeros((total, 64, 64), np.uint8)
    made[np.arange(total), np.arange(total) % 64, np.arange(total) // 64] = 1
    write(own_data, made)
    return made


def test_kept_images_and_factors(images: np.ndarray) -> None:
    parts = [load_data("dsprites", split, stride=2) for split in ("train", "val", "test")]
    got = torch.cat([data.images[:, 0] for data in parts])
    labels = torch.cat([data.labels for data in parts])
    meta = {name: torch.cat([data.meta[name] for data in parts]) for name in parts[0].meta}
    rows, columns = np.nonzero(got.flatten(1).numpy())
    assert (np.bincount(rows) == 1).all()
    numbers = columns // 64 + 64 * (columns % 64)
    shape, scale, turn, x, y = np.unravel_index(numbers, FEW)
    assert sorted(numbers) == [n for n in range(288) if n % 4 % 2 == 0 and n // 4 % 4 % 2 == 0]
    assert labels.tolist() == shape.tolist()
    assert np.allclose(meta["scale"], 0.5 + 0.1 * scale)
    assert np.allclose(meta["orientation"], turn * 180)
    assert np.allclose(meta["x"], x / 3)
    assert np.allclose(meta["y"], y / 3)
    assert meta["symmetry"].tolist() == [(4, 2, 1)[k] for k in shape]
    assert (int(got.max()), len(parts[1]), len(parts[2])) == (255, 7, 14)


def test_scaled_images(images: np.ndarray) -> None:
    assert load_data("dsprites", "test", stride=2, image_size=32).images.max() == 64


@pytest.mark.parametrize(("stride", "size", "argument", "value"), [(1, 64, "stride", 1), (5, 60, "image_size", 60)])
def test_bad_options(stride: int, size: int, argument: str, value: int) -> None:
    with raises_about(ConfigError, argument, value):
        load_data("dsprites", "test", stride=stride, image_size=size)


def test_other_sizes_and_cut_files(images: np.ndarray, own_data: Path) -> None:
    write(own_data, images[:-1])
    with pytest.raises(DataError, match="header"):
        load_data("dsprites", "test")
    write(own_data, images, cut=500_000)
    with pytest.raises(DataError, match="rows"):
        load_data("dsprites", "test")
