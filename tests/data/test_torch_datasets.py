"""Every registered data set with the ordinary tools of PyTorch, torchmetrics and Lightning."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, cast

import lightning
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Subset, random_split
from torchmetrics.classification import MulticlassAccuracy

import torchcaps as tc
from formats import array_file, pixels
from torchcaps.data import DATASETS, ImageDataset, make_shards
from torchcaps.data.verify import local_source

GENERATED = ("affine_mnist", "crowded_digits", "digit_pairs", "multimnist", "translated_mnist")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "images"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(12):
            Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module", params=DATASETS.names())
def data(request: pytest.FixtureRequest, folder: Path) -> ImageDataset:
    """The test split of every data set whose files are on this machine."""
    name = request.param
    if name in GENERATED:
        return tc.load_data(name, "test", source="digits")
    if name == "folder":
        return tc.load_data("folder", "train", path=folder)
    if name == "arrays":
        file = folder.parent / "images.npz"
        file.write_bytes(array_file(pixels(40, 8, 8)))
        return tc.load_data("arrays", "train", path=file)
    if name == "folds":
        return tc.load_data("folds", "test", source="digits", fold=1, folds=5)
    if name == "shards":
        shards = folder.parent / "shards"
        return tc.load_data("shards", "train", path=shards if shards.exists() else make_shards(folder, shards))
    source = local_source(name)
    test_files = [] if source is None else [f for f in source.files if "t10k" in f.name or "test" in f.name]
    if source is not None and not (test_files and all(source.find(file) for file in test_files)):
        pytest.skip(f"the files of {name} are not on this machine")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tc.load_data(name, "test")


def test_sample(data):
    image, label = data[0]
    assert (image.dtype, tuple(image.shape)) == (torch.float32, data.image_shape)
    assert 0 <= float(image.min()) <= float(image.max()) <= 1
    if data.num_labels == 1:
        assert type(label) is int
        assert 0 <= label < data.num_classes
    else:
        assert tuple(label.shape) == (2,)
    assert torch.equal(data[-1][0], data[len(data) - 1][0])


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(data, workers):
    loader = DataLoader(Subset(data, range(12)), batch_size=8, num_workers=workers)
    batches = list(loader)
    assert [len(images) for images, _ in batches] == [8, 4]
    expected = data.batch(range(12))
    assert torch.equal(torch.cat([images for images, _ in batches]), tc.data.to_float(expected.images))
    assert torch.equal(torch.cat([labels for _, labels in batches]), expected.labels)


def test_random_split(data):
    first, second = cast(list[Any], random_split(data, [0.75, 0.25], generator=torch.Generator().manual_seed(0)))
    assert len(first) + len(second) == len(data)
    assert first[0][0].shape == data.image_shape


def test_torchmetrics(data):
    if data.num_labels != 1:
        pytest.skip("two labels per image")
    metric = MulticlassAccuracy(num_classes=data.num_classes, average="micro")
    for _, labels in DataLoader(data[:12], batch_size=5):
        metric.update(labels, labels)
    assert metric.compute() == 1


class Classifier(lightning.LightningModule):
    """A plain module as in Lightning's own examples."""

    def __init__(self, data: ImageDataset) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(data.image_shape)), data.num_classes))

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["digits", "translated_mnist"])
def test_lightning(name, tmp_path):
    options: dict[str, Any] = {} if name == "digits" else {"source": "digits"}
    data = tc.load_data(name, "val", **options)
    trainer = lightning.Trainer(
        max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Classifier(data), DataLoader(data, batch_size=16, shuffle=True))
    assert trainer.global_step == 3
