from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import torchcaps as tc
from raising import raises_about
from torchcaps.data import BatchLoader, ShardedDataset, load_shards, make_shards
from torchcaps.data.readers.shard_files import INDEX
from torchcaps.errors import ConfigError, DataError, ShapeError

COUNT = 48


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 images of 4x4 in two classes, each filled with its number, 48 of them for training, in shards of 7."""
    root = tmp_path_factory.mktemp("made")
    for number in range(60):
        file = root / "images" / ("even", "odd")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(file)
    return make_shards(root / "images", root / "shards", shard_size=7)


@pytest.fixture
def copy(shards: Path, tmp_path: Path) -> Path:
    return shutil.copytree(shards, tmp_path / "copy")


def numbers(batches) -> list[int]:
    return [round(value * 255) for images, _ in batches for value in images[:, 0, 0, 0].tolist()]


def test_attributes(shards):
    data = tc.load_data("shards", "train", path=shards)
    assert isinstance(data, ShardedDataset)
    assert (len(data), data.image_shape, data.class_names) == (COUNT, (1, 4, 4), ("even", "odd"))
    assert torch.equal(data.images[:, 0, 0, 0] % 2, data.labels)
    assert {len(tc.load_data("shards", split, path=shards)) for split in ("val", "test")} == {6}
    assert len(tc.load_data("shards", "train+val", path=shards)) == COUNT + 6
    whole = data.images[:, 0, 0, 0].tolist()
    assert len(set(whole)) == COUNT
    assert data.batch([40, 0, 13]).images[:, 0, 0, 0].tolist() == [whole[40], whole[0], whole[13]]
    assert [len(batch.labels) for batch in data.batches(20)] == [20, 20, 8]
    assert torch.equal(data.subset(data.labels == 1).images, data.images[data.labels == 1])


def test_shuffled_pass_is_a_permutation(shards):
    loader = BatchLoader(load_shards("train", shards, buffer=20), 8, shuffle=True, seed=2)
    first, second = numbers(loader), numbers(loader)
    stored = load_shards("train", shards).images[:, 0, 0, 0].tolist()
    assert sorted(first) == sorted(second) == sorted(stored)
    assert len({tuple(order) for order in (first, second, stored)}) == 3


def test_shuffling_window(shards):
    data = load_shards("train", shards, buffer=14)
    order = data.shuffled_order(5)(0, COUNT)
    assert sorted(order.tolist()) == list(range(COUNT))
    # A window of 14 images touches three shards at most.
    assert all(len({number // 7 for number in window.tolist()}) <= 3 for window in order.split(14))
    pieces = [data.shuffled_order(5)(start, min(start + 5, COUNT)) for start in range(0, COUNT, 5)]
    assert torch.equal(torch.cat(pieces), order)
    assert not torch.equal(data.shuffled_order(6)(0, COUNT), order)


@pytest.mark.parametrize("shuffle", [True, False])
def test_processes_and_workers(shards, shuffle):
    data = load_shards("train", shards, buffer=20)
    seen = []
    for rank in range(2):
        loader = BatchLoader(data, 8, shuffle=shuffle, seed=3, rank=rank, world=2)
        ahead = DataLoader(loader, batch_size=None, num_workers=2)
        mine = [(images.clone(), labels.clone()) for images, labels in ahead]
        assert numbers(mine) == numbers(BatchLoader(data, 8, shuffle=shuffle, seed=3, rank=rank, world=2))
        seen += numbers(mine)
    assert len(seen) == COUNT
    assert sorted(seen) == sorted(data.images[:, 0, 0, 0].tolist())


@pytest.mark.parametrize("position", range(1, 6))
def test_resume(shards, position):
    def make() -> BatchLoader:
        return BatchLoader(load_shards("train", shards, buffer=20), 8, shuffle=True, seed=4)

    whole = numbers(make())
    begun = make()
    iterator = iter(begun)
    seen = numbers([next(iterator) for _ in range(position)])
    resumed = make()
    resumed.load_state_dict(begun.state_dict())
    assert seen + numbers(resumed) == whole


def test_cropped(shards):
    data = load_shards("val", shards).cropped(2)
    assert data.image_shape == (1, 2, 2)
    assert data.batch([0]).images.shape == (1, 1, 2, 2)
    with raises_about(ShapeError, "images", "9x9", "2x2"):
        data.cropped(9)


# It leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_our_shards(shards):
    webdataset = pytest.importorskip("webdataset")
    urls = [str(file) for file in sorted(shards.glob("train-*.tar"))]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False, empty_check=False).decode("l8"))
    data = load_shards("train", shards)
    gc.collect()
    assert [sample["cls"] for sample in samples] == data.labels.tolist()
    assert all((sample["png"] == image[0].numpy()).all() for sample, image in zip(samples, data.images, strict=True))


def test_shards_of_webdataset(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "a.tar")) as writer:
        for number in range(5):
            image = Image.fromarray(np.full((4, 4, 3), number, np.uint8))
            writer.write({"__key__": f"sample{number}", "png": image, "cls": number % 3})
    entry = {"file": "a.tar", "count": 5, "bytes": (tmp_path / "a.tar").stat().st_size}
    index = {"class_names": ["a", "b", "c"], "image_shape": [3, 4, 4], "splits": {"train": [entry]}}
    (tmp_path / INDEX).write_text(json.dumps(index))
    data = load_shards("train", tmp_path)
    assert data.labels.tolist() == [0, 1, 2, 0, 1]
    assert data.images[:, 2, 3, 3].tolist() == [0, 1, 2, 3, 4]


def test_truncated_or_missing_shard(copy):
    shard = copy / "train-000001.tar"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with raises_about(DataError, shard, f"{len(content):,}", f"got {len(content) - 1:,}"):
        load_shards("train", copy)
    shard.unlink()
    with raises_about(DataError, shard, "no such file"):
        load_shards("train", copy)


def test_buffer(shards):
    with raises_about(ConfigError, "buffer", 0):
        load_shards("train", shards, buffer=0)
