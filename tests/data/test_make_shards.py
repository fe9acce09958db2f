from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data import load_folder, load_shards, make_shards
from torchcaps.data._shard_files import INDEX
from torchcaps.errors import ConfigError, DataError


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(12):
            file = tmp_path / "pictures" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 255, (9, 7, 3), dtype=np.uint8)).save(file)
    return tmp_path / "pictures"


@pytest.mark.parametrize("options", [{}, {"image_size": 6, "channels": 1}])
def test_shards_hold_what_the_folder_does(pictures, tmp_path, options):
    out = make_shards(pictures, tmp_path / "shards", shard_size=4, **options)
    for split in ("train", "val", "test"):
        stored, folder = load_shards(split, out), load_folder(split, pictures, **options)
        assert stored.image_shape == folder.image_shape
        assert stored.class_names == folder.class_names
        pairs = [sorted(zip(map(bytes, part.images.numpy()), part.labels.tolist(), strict=True))
                 for part in (stored, folder)]  # fmt: skip
        assert pairs[0] == pairs[1]


def test_classes_are_mixed_and_shards_are_even(pictures, tmp_path):
    out = make_shards(pictures, tmp_path / "shards", shard_size=8)
    entries = json.loads((out / INDEX).read_text())["parts"]["train"]
    assert [entry["count"] for entry in entries] == [8, 8, 4]
    labels = load_shards("train", out).labels
    assert 0 < labels[:8].sum() < 8
    assert sorted(file.name for file in out.glob("train-*")) == [f"train-00000{k}.tar" for k in range(3)]


def test_the_same_images_give_the_same_files(pictures, tmp_path):
    first, second = (make_shards(pictures, tmp_path / name) for name in ("one", "two"))
    assert [f.read_bytes() for f in sorted(first.iterdir())] == [f.read_bytes() for f in sorted(second.iterdir())]


def test_progress_counts_every_image(pictures, tmp_path):
    seen = []
    make_shards(pictures, tmp_path / "shards", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 24) for k in range(1, 25)]


def test_a_failure_leaves_nothing_and_a_leftover_is_no_hindrance(pictures, tmp_path):
    bad = pictures / "dog" / "99.png"
    bad.write_bytes((pictures / "dog" / "0.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"99\.png: expected an image that can be read"):
        make_shards(pictures, tmp_path / "shards", image_size=4, channels=3)
    assert {entry.name for entry in tmp_path.iterdir()} == {"pictures"}
    bad.unlink()
    (tmp_path / ".shards.part").mkdir()
    (tmp_path / ".shards.part" / "train-000009.tar").write_bytes(b"of a run that was killed")
    (tmp_path / "shards").mkdir()
    out = make_shards(pictures, tmp_path / "shards")
    assert {entry.name for entry in tmp_path.iterdir()} == {"pictures", "shards"}
    assert "train-000009.tar" not in {file.name for file in out.iterdir()}


def test_nothing_is_written_over(pictures, tmp_path):
    out = make_shards(pictures, tmp_path / "shards")
    with pytest.raises(DataError, match="shards: expected a new or empty folder, got one that holds something"):
        make_shards(pictures, out)


def test_a_shard_of_nothing(pictures, tmp_path):
    with pytest.raises(ConfigError, match="shard_size: expected a count of at least 1, got 0"):
        make_shards(pictures, tmp_path / "shards", shard_size=0)


def test_colours_stay(pictures, tmp_path):
    data = load_shards("train", make_shards(pictures, tmp_path / "shards"))
    assert data.image_shape == (3, 9, 7)
    assert not torch.equal(data.images[:, 0], data.images[:, 1])
