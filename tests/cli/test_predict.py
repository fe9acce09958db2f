from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .conftest import CLASSES


@pytest.fixture
def image(pictures: Path) -> Path:
    return pictures / CLASSES[2] / "0.png"


def test_label_activations_and_reconstruction(run: Path, image: Path, ask, ask_json) -> None:
    document = ask_json("predict", run, image)
    (entry,) = document["predictions"]
    assert entry["image"] == str(image)
    assert tuple(entry["activations"]) == CLASSES
    assert entry["label"] == max(entry["activations"], key=lambda name: entry["activations"][name])
    assert [name for name, _ in entry["top"]] == sorted(CLASSES, key=lambda name: -entry["activations"][name])
    assert entry["reconstruction"] == str(run / "pictures" / "predictions" / "0.png")
    with Image.open(entry["reconstruction"]) as picture:
        assert picture.width > 200
    code, out, err = ask("predict", run, image)
    assert (code, err) == (0, "")
    assert f"{entry['label']} {entry['activations'][entry['label']]:.2f}" in out
    assert str(run / "pictures" / "predictions") in out


def test_a_file_gets_the_answer_that_its_pixels_get(run: Path, image: Path, ask_json, tmp_path: Path) -> None:
    expected = ask_json("predict", run, image)["predictions"][0]["activations"]
    turned = tmp_path / "inverted.png"
    Image.open(image).point([255 - value for value in range(256)]).save(turned)
    assert ask_json("predict", run, turned, "--invert")["predictions"][0]["activations"] == pytest.approx(expected)
    assert ask_json("predict", run, turned)["predictions"][0]["activations"] != pytest.approx(expected)


@pytest.mark.parametrize(
    ("suffix", "mode", "size"), [("jpg", "RGB", (300, 200)), ("webp", "RGBA", (7, 9)), ("gif", "P", (20, 64))]
)
def test_any_common_file_of_any_size(
    run: Path, ask_json, tmp_path: Path, suffix: str, mode: str, size: tuple[int, int]
) -> None:
    file = tmp_path / f"image.{suffix}"
    Image.new(mode, size).save(file)
    assert ask_json("predict", run, file, "--out", tmp_path)["predictions"][0]["label"] in CLASSES


def test_images_of_one_name_get_a_reconstruction_each(run: Path, pictures: Path, ask_json, tmp_path: Path) -> None:
    files = [pictures / name / "1.png" for name in CLASSES]
    entries = ask_json("predict", run, *files, "--out", tmp_path / "new" / "folder")["predictions"]
    assert [Path(entry["reconstruction"]).name for entry in entries] == ["1.png", "1-2.png", "1-3.png"]
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 3


def test_a_network_without_a_decoder_gives_no_reconstruction(cnn_run: Path, image: Path, ask, ask_json) -> None:
    (entry,) = ask_json("predict", cnn_run, image)["predictions"]
    assert entry["reconstruction"] is None
    assert sum(entry["activations"].values()) == pytest.approx(1)
    assert "capsule" not in ask("predict", cnn_run, image)[1]
    assert not (cnn_run / "pictures" / "predictions").exists()


def test_mistakes_are_named(run: Path, ask, tmp_path: Path) -> None:
    missing = tmp_path / "missing.png"
    assert ask("predict", run, missing) == (2, "", f"{missing}: expected an image file, got no such file\n")
    code, _, err = ask("predict", run)
    assert code == 2
    assert err.startswith("the following arguments are required: IMAGE")
