import numpy as np
import pytest
import torch
from PIL import Image

from raising import raises_about
from torchcaps.data import load_data
from torchcaps.data.folder_files import scan_folder
from torchcaps.errors import ConfigError, DataError


def fill(folder, values, size=(8, 8), suffix="png"):
    """One flat image per value."""
    folder.mkdir(parents=True)
    for value in values:
        Image.fromarray(np.full(size, value, np.uint8)).save(folder / f"{value:03}.{suffix}")


@pytest.fixture
def pets(tmp_path):
    fill(tmp_path / "pets" / "cat", range(40))
    fill(tmp_path / "pets" / "dog", range(100, 120))
    return tmp_path / "pets"


def values(data) -> list[int]:
    return data.images[:, 0, 0, 0].tolist()


def test_splits_partition_the_images(pets):
    train, val, test = (load_data("folder", split, path=pets) for split in ("train", "val", "test"))
    assert sorted(values(train) + values(val) + values(test)) == [*range(40), *range(100, 120)]
    assert val.labels.bincount().tolist() == [4, 2]
    assert test.labels.bincount().tolist() == [4, 2]
    assert values(load_data("folder", "train+val", path=pets)) == values(train) + values(val)


def test_labels_names_and_shape(pets):
    data = load_data("folder", "train", path=str(pets))
    assert data.class_names == ("cat", "dog")
    assert torch.equal(data.labels == 1, torch.tensor(values(data)) >= 100)
    assert data.image_shape == (1, 8, 8)
    assert (data.name, data.origin) == ("pets", str(pets))


def test_added_images(pets):
    before = values(load_data("folder", "test", path=pets))
    fill(pets / "cat" / "more", range(40, 42))
    after = values(load_data("folder", "test", path=pets))
    assert len(set(before) - set(after)) <= 1


def test_fractions(pets):
    data = load_data("folder", "val", path=pets, val_fraction=0.25, test_fraction=0.2)
    assert data.labels.bincount().tolist() == [10, 5]


@pytest.mark.parametrize("name", ["val_fraction", "test_fraction"])
@pytest.mark.parametrize("value", [0, 0.5, -1])
def test_wrong_fractions(pets, name, value):
    with raises_about(ConfigError, f"{name}", f"got {value}"):
        load_data("folder", path=pets, **{name: value})


def test_split_folders(tmp_path):
    for k, part in enumerate(("train", "val", "test")):
        for j, name in enumerate(("cat", "dog")):
            fill(tmp_path / part / name, range(50 * k + 10 * j, 50 * k + 10 * j + 3))
    for k, part in enumerate(("train", "val", "test")):
        expected = [50 * k + 10 * j + i for j in range(2) for i in range(3)]
        assert values(load_data("folder", part, path=tmp_path)) == expected


def test_missing_split_folder(tmp_path):
    for name, start in (("cat", 0), ("dog", 100)):
        fill(tmp_path / "train" / name, range(start, start + 10))
        fill(tmp_path / "test" / name, range(start + 50, start + 52))
    train, val, test = (load_data("folder", split, path=tmp_path) for split in ("train", "val", "test"))
    assert values(test) == [50, 51, 150, 151]
    assert sorted(values(train) + values(val)) == [*range(10), *range(100, 110)]
    assert len(val) == 2


def test_class_missing_in_training(tmp_path):
    for name in ("train/cat", "train/dog", "test/cat", "test/cow"):
        fill(tmp_path / name, range(4))
    with raises_about(DataError, "test/cow", "got a new one"):
        load_data("folder", path=tmp_path)


def test_most_common_size(pets):
    fill(pets / "dog" / "wide", range(120, 123), size=(6, 12))
    Image.new("RGB", (30, 30), "red").save(pets / "cat" / "red.jpg")
    for split in ("train", "val", "test"):
        assert load_data("folder", split, path=pets).image_shape == (3, 8, 8)


def test_large_images(tmp_path):
    for name in ("cat", "dog"):
        fill(tmp_path / name, range(3), size=(300, 400))
    assert load_data("folder", path=tmp_path).image_shape == (1, 168, 224)


@pytest.mark.parametrize(("size", "shape"), [(12, (1, 12, 12)), ((5, 9), (1, 5, 9)), ([5, 9], (1, 5, 9))])
def test_size_and_channels(pets, size, shape):
    assert load_data("folder", path=pets, image_size=size).image_shape == shape
    assert load_data("folder", path=pets, image_size=size, channels=3).image_shape == (3, *shape[1:])


def test_channels_alone(pets):
    assert load_data("folder", path=pets, channels=3).image_shape == (3, 8, 8)


@pytest.mark.parametrize("size", [0, (1, 2, 3), (4, -1), (4.0, 4)])
def test_wrong_sizes(pets, size):
    with raises_about(ConfigError, "image_size"):
        load_data("folder", path=pets, image_size=size)


def test_wrong_channels(pets):
    with raises_about(ConfigError, "channels", "got 2"):
        load_data("folder", path=pets, channels=2)


def test_other_files_are_ignored(pets):
    (pets / "readme.txt").write_text("about my pets")
    (pets / "cat" / "notes.txt").write_text("a cat")
    (pets / "cat" / ".hidden.png").write_bytes(b"")
    (pets / ".git").mkdir()
    assert len(load_data("folder", "train", path=pets)) == 48


def test_no_such_folder(tmp_path):
    with raises_about(DataError, "none", "no such folder"):
        load_data("folder", path=tmp_path / "none")


def test_empty_folder(tmp_path):
    with raises_about(DataError, tmp_path, "found none"):
        load_data("folder", path=tmp_path)


def test_images_without_sub_folders(tmp_path):
    fill(tmp_path / "flat", range(3))
    with raises_about(DataError, "flat", "got 0"):
        load_data("folder", path=tmp_path / "flat")


def test_one_class_only(tmp_path):
    fill(tmp_path / "cat", range(3))
    with raises_about(DataError, "got 1"):
        load_data("folder", path=tmp_path)


def test_empty_class(pets):
    (pets / "cow").mkdir()
    with raises_about(DataError, "cow", "found none"):
        load_data("folder", path=pets)


def test_too_few_images(pets):
    fill(pets / "cow", range(2))
    with raises_about(DataError, "cow", "got 2"):
        load_data("folder", path=pets)


@pytest.fixture
def damaged(pets):
    """Two files that cannot be read beside the others: one is no image, the other is cut off."""
    (pets / "dog" / "broken.jpg").write_bytes(b"no picture")
    whole = (pets / "cat" / "007.png").read_bytes()
    (pets / "cat" / "cut.png").write_bytes(whole[:-30])
    return pets


def test_damaged_image(pets):
    (pets / "dog" / "broken.jpg").write_bytes(b"no picture")
    with raises_about(DataError, "dog/broken.jpg", "skip_bad"):
        load_data("folder", path=pets)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_all_damaged_images_are_listed(damaged, split):
    with pytest.raises(DataError) as caught:
        load_data("folder", split, path=damaged)
    first, *files = str(caught.value).splitlines()
    assert first.startswith(f"{damaged}: ")
    assert "2 bad files" in first
    assert [line.split(": ")[0].strip() for line in files] == [
        str(damaged / "cat/cut.png"),
        str(damaged / "dog/broken.jpg"),
    ]


def test_damaged_images_are_left_out(damaged):
    with pytest.warns(UserWarning, match=r"2 files.*cut\.png.*broken\.jpg"):
        train = load_data("folder", "train", path=damaged, skip_bad=True)
    val, test = (load_data("folder", split, path=damaged, skip_bad=True) for split in ("val", "test"))
    assert sorted(values(train) + values(val) + values(test)) == [*range(40), *range(100, 120)]


def test_a_class_of_damaged_images_alone(pets):
    (pets / "cow").mkdir()
    for number in range(4):
        (pets / "cow" / f"{number}.png").write_bytes(b"moo")
    with raises_about(DataError, pets / "cow", "got 0"):
        load_data("folder", path=pets, skip_bad=True)


def test_a_repaired_image_is_read_again(damaged):
    (damaged / "dog" / "broken.jpg").unlink()
    with raises_about(DataError, "cut.png"):
        load_data("folder", path=damaged)
    (damaged / "cat" / "cut.png").write_bytes((damaged / "cat" / "007.png").read_bytes())
    assert len(load_data("folder", "train+val", path=damaged)) == 55


@pytest.mark.parametrize("name", ["valid", "validation"])
def test_other_names_of_the_validation_split(tmp_path, name):
    for j, kind in enumerate(("cat", "dog")):
        fill(tmp_path / "train" / kind, range(10 * j, 10 * j + 6))
        fill(tmp_path / name / kind, range(50 + 10 * j, 50 + 10 * j + 3))
    assert values(load_data("folder", "val", path=tmp_path)) == [50, 51, 52, 60, 61, 62]
    assert len(load_data("folder", "train", path=tmp_path)) == 10
    for kind in ("cat", "dog"):
        fill(tmp_path / "val" / kind, range(3))
    with raises_about(DataError, tmp_path, "val", name):
        load_data("folder", path=tmp_path)


@pytest.mark.parametrize(("largest", "side"), [(20, 15), (600, 224)])
def test_mixed_sizes_give_a_square(tmp_path, largest, side):
    for k, name in enumerate(("cat", "dog")):
        for number, width in enumerate(np.linspace(10 + k, largest, 10, dtype=int)):
            fill(tmp_path / name / str(number), [number], size=(8, int(width)))
    shape = load_data("folder", path=tmp_path).image_shape
    assert shape[1] == shape[2]
    assert abs(shape[1] - side) <= 2


def test_images_on_disk_are_those_in_memory(pets):
    fill(pets / "cat" / "wide", range(40, 48), size=(6, 12))
    for split in ("train", "val", "train+val"):
        memory, disk = (load_data("folder", split, path=pets, memory_mb=limit) for limit in (1, 0))
        assert (memory.in_memory, disk.in_memory) == (True, False)
        assert disk.image_shape == memory.image_shape
        assert torch.equal(disk.images, memory.images)
        assert torch.equal(disk.labels, memory.labels)
        some = torch.tensor([3, 0, 2])
        assert torch.equal(disk.subset(some).images, memory.subset(some).images)
        assert torch.equal(disk.cropped(4).images, memory.cropped(4).images)
        assert disk.cropped(4).image_shape == (1, 4, 4)


@pytest.mark.parametrize("value", [-1, True])
def test_wrong_memory(pets, value):
    with raises_about(ConfigError, "memory_mb", f"got {value}"):
        load_data("folder", path=pets, memory_mb=value)


def test_a_split_of_bad_files_is_chosen_again(pets) -> None:
    chosen = scan_folder(pets, {"test": 0.1}).splits["test"]["dog"]
    for file in chosen:
        file.write_bytes(b"nothing")
    again = scan_folder(pets, {"test": 0.1}, skip_bad=True)
    assert again.splits["test"]["dog"]
    assert not set(chosen) & {file for files in again.splits.values() for file in files["dog"]}
    for file in pets.glob("dog/*"):
        file.write_bytes(b"nothing")
    with raises_about(DataError, "dog", "got 0"):
        scan_folder(pets, {"test": 0.1}, skip_bad=True)
