from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import load_folder, load_shards, make_shards
from torchcaps.data.readers.shard_files import INDEX
from torchcaps.errors import ConfigError, DataError


@pytest.fixture
def images(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(12):
            file = tmp_path / "images" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 255, (9, 7, 3), dtype=np.uint8)).save(file)
    return tmp_path / "images"


@pytest.mark.parametrize("options", [{}, {"image_size": 6, "channels": 1}])
def test_same_images_as_the_folder(images, tmp_path, options):
    out = make_shards(images, tmp_path / "shards", shard_size=4, **options)
    for split in ("train", "val", "test"):
        stored, folder = load_shards(split, out), load_folder(split, images, **options)
        assert stored.image_shape == folder.image_shape
        assert stored.class_names == folder.class_names
        pairs = [sorted(zip(map(bytes, part.images.numpy()), part.labels.tolist(), strict=True))
                 for part in (stored, folder)]  # fmt: skip
        assert pairs[0] == pairs[1]


def test_classes_are_shuffled(images, tmp_path):
    out = make_shards(images, tmp_path / "shards", shard_size=8)
    entries = json.loads((out / INDEX).read_text())["splits"]["train"]
    assert [entry["count"] for entry in entries] == [8, 8, 4]
    labels = load_shards("train", out).labels
    assert 0 < labels[:8].sum() < 8
    assert sorted(file.name for file in out.glob("train-*")) == [f"train-00000{k}.tar" for k in range(3)]


def test_reproducible(images, tmp_path):
    first, second = (make_shards(images, tmp_path / name) for name in ("one", "two"))
    assert [f.read_bytes() for f in sorted(first.iterdir())] == [f.read_bytes() for f in sorted(second.iterdir())]


def test_progress(images, tmp_path):
    seen = []
    make_shards(images, tmp_path / "shards", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 24) for k in range(1, 25)]


def test_failure_leaves_nothing(images, tmp_path):
    bad = images / "dog" / "99.png"
    bad.write_bytes((images / "dog" / "0.png").read_bytes()[:60])
    with raises_about(DataError, "99.png"):
        make_shards(images, tmp_path / "shards", image_size=4, channels=3)
    assert {entry.name for entry in tmp_path.iterdir()} == {"images"}
    bad.unlink()
    (tmp_path / ".shards.part").mkdir()
    (tmp_path / ".shards.part" / "train-000009.tar").write_bytes(b"of a run that was killed")
    (tmp_path / "shards").mkdir()
    out = make_shards(images, tmp_path / "shards")
    assert {entry.name for entry in tmp_path.iterdir()} == {"images", "shards"}
    assert "train-000009.tar" not in {file.name for file in out.iterdir()}


def test_existing_files(images, tmp_path):
    out = make_shards(images, tmp_path / "shards")
    with raises_about(DataError, "shards", "got one with files"):
        make_shards(images, out)


def test_wrong_shard_size(images, tmp_path):
    with raises_about(ConfigError, "shard_size", "got 0"):
        make_shards(images, tmp_path / "shards", shard_size=0)


def test_colour(images, tmp_path):
    data = load_shards("train", make_shards(images, tmp_path / "shards"))
    assert data.image_shape == (3, 9, 7)
    assert not torch.equal(data.images[:, 0], data.images[:, 1])
