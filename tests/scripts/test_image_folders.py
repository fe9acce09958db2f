"""Real image sets as folders: splits do not share objects, and files keep their bytes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from torchcaps.data.folder_files import scan_folder


@pytest.fixture(scope="module")
def folders() -> ModuleType:
    file = Path(__file__).parents[2] / "scripts" / "make_image_folders.py"
    spec = importlib.util.spec_from_file_location("make_image_folders", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(path, shade=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(path)


def test_blocks_of_ground_are_in_one_split(folders, tmp_path):
    for number in range(1, 1200, 20):
        save(tmp_path / "eurosat" / "2750" / "Forest" / f"Forest_{number}.jpg")
    items = list(folders.eurosat(tmp_path))
    splits = {}
    for item in items:
        splits.setdefault(int(item.name[7:-4]) // folders.BLOCK, set()).add(item.split)
    assert all(len(kinds) == 1 for kinds in splits.values())
    counts = {split: sum(item.split == split for item in items) for split in ("train", "val", "test")}
    assert counts == {"train": 42, "val": 6, "test": 12}


def test_objects_are_in_one_split(folders, tmp_path):
    for number in (1, 2, 3, 5, 6, 7, 9, 11, 12, 14):
        for view in ("000-000", "090-045"):
            save(tmp_path / "eth80-cropped64" / f"car{number}" / f"car{number}-{view}.png")
    found = {(item.name.split("-")[0], item.split) for item in folders.eth80(tmp_path)}
    assert {name for name, split in found if split == "test"} == {"car12", "car14"}
    assert {name for name, split in found if split == "val"} == {"car11"}
    assert len(found) == 10


def test_written_folder_is_one_that_training_reads(folders, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 6), ("val", 4), ("test", 4)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{split}_labels"] = np.arange(count)[:, None] % 2
    (tmp_path / "medmnist").mkdir()
    np.savez(tmp_path / "medmnist" / "breastmnist.npz", **arrays)
    assert folders.write_folder(folders.SETS["breast"](tmp_path), tmp_path / "breast") == 14
    scanned = scan_folder(tmp_path / "breast", {"val": 0.1, "test": 0.1})
    assert {
        split: {name: len(files) for name, files in classes.items()} for split, classes in scanned.splits.items()
    } == {
        "train": {"benign": 3, "malignant": 3},
        "val": {"benign": 2, "malignant": 2},
        "test": {"benign": 2, "malignant": 2},
    }
    image = np.asarray(Image.open(tmp_path / "breast" / "test" / "benign" / "0001.png"))
    assert (image == arrays["test_images"][1]).all()
    with pytest.raises(FileExistsError):
        folders.write_folder(iter(()), tmp_path / "breast")
