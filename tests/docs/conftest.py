"""What the pages of the docs name: runs, images, tables and modules."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchcaps as tc
from torchcaps.models import MODELS

from .test_pages import DOCS, blocks

# What follows the words of the docs, so that a training takes seconds. Of repeated options the last holds.
TINY = ["trainer.epochs=1", "data.epoch_size=32", "data.batch_size=16", "optim.warmup=0", "trainer.accelerator=cpu"]


def make_photos(folder: Path) -> None:
    noise = np.random.default_rng(0)
    for kind in ("cat", "dog"):
        (folder / kind).mkdir(parents=True)
        for number in range(20):
            pixels = noise.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.png")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs, images and modules that the pages name."""
    folder = tmp_path_factory.mktemp("commands")
    small = ["data.epoch_size=128", *(word for word in TINY if "epoch_size" not in word)]
    run = tc.train.fit(tc.train.load_recipe("digits", small), folder / "runs" / "NAME").path
    for other in ("A", "B"):
        shutil.copytree(run, folder / "runs" / other)
    for photos in ("photos", "my_images", "my/images", "my/pictures", "new_photos", "photos_moved"):
        make_photos(folder / photos)
    names = sorted(path.relative_to(folder / "my/images").as_posix() for path in (folder / "my/images").rglob("*.png"))
    table = "\n".join(["file,patient", *(f"{each},{number % 10}" for number, each in enumerate(names))])
    (folder / "patients.csv").write_text(table)
    for file in ("photo.png", "digit.png", "scan.jpg", "a.png", "b.png"):
        Image.new("L", (28, 28), 200).save(folder / file)
    code = next(block for block in blocks(DOCS / "command_line.md", "python") if "my_nets.py" in block)
    (folder / "my_nets.py").write_text(code)
    backbone = tc.create_model("backbone_linear", (3, 32, 32), 2, backbone="resnet18")
    tc.models.save_weights(backbone.stem, folder / "resnet18.safetensors")
    return folder


@pytest.fixture
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the folder as working folder; what a command imports from it is forgotten afterwards."""
    shutil.copytree(prepared, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setenv("TORCHCAPS_IMPORT", "")
    yield tmp_path / "place"
    sys.modules.pop("my_nets", None)
    MODELS._items.pop("my_net", None)
