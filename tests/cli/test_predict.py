from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from refusing import refused
from shipping import ship
from torchcaps.models import pretrained

from .conftest import CLASSES, train_in


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
    assert entry["reconstruction"] == str(run / "figures" / "predictions" / "0.png")
    with Image.open(entry["reconstruction"]) as picture:
        assert picture.width > 200
    code, out, err = ask("predict", run, image)
    assert (code, err) == (0, "")
    assert sum(entry["probabilities"].values()) == pytest.approx(1)
    assert f"{entry['label']} {entry['probabilities'][entry['label']]:.1%}" in out
    assert "calibrated on the validation split" in out
    assert str(run / "figures" / "predictions") in out


def test_file_prediction_matches_pixels(run: Path, image: Path, ask_json, tmp_path: Path) -> None:
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


def test_reconstructions_of_equal_file_names(run: Path, pictures: Path, ask_json, tmp_path: Path) -> None:
    files = [pictures / name / "1.png" for name in CLASSES]
    entries = ask_json("predict", run, *files, "--out", tmp_path / "new" / "folder")["predictions"]
    assert [Path(entry["reconstruction"]).name for entry in entries] == ["1.png", "1-2.png", "1-3.png"]
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 3


def test_no_reconstruction_without_decoder(cnn_run: Path, image: Path, ask, ask_json) -> None:
    (entry,) = ask_json("predict", cnn_run, image)["predictions"]
    assert entry["reconstruction"] is None
    assert sum(entry["activations"].values()) == pytest.approx(1)
    assert "capsule" not in ask("predict", cnn_run, image)[1]
    assert not (cnn_run / "figures" / "predictions").exists()


def test_errors_name_the_argument(run: Path, ask, tmp_path: Path) -> None:
    missing = tmp_path / "missing.png"
    refused(ask, "predict", run, missing, about=[missing])
    refused(ask, "predict", run, about=["expected IMAGE", "torchcaps predict --help"])
    refused(ask, "predict", about=["expected RUN and IMAGE", "--pretrained NAME"])
    refused(ask, "predict", "--pretrained", "mnist", about=["expected IMAGE"])


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the one inside the package, with weights for single digits; and an empty one to be in."""
    folder = tmp_path / "pretrained"
    folder.mkdir()
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    ship(folder, "mnist", class_names=[f"digit {number}" for number in range(10)])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_bundled_weights_need_no_run(shipped: Path, image: Path, ask, ask_json) -> None:
    document = ask_json("predict", "--pretrained", "mnist", image, image)
    assert document["pretrained"] == "mnist"
    first, second = document["predictions"]
    assert first["labels"] == [first["label"]]
    assert list(first["activations"]) == [f"digit {number}" for number in range(10)]
    assert (first["reconstruction"], second["reconstruction"]) == ("predictions/0.png", "predictions/0-2.png")
    assert Path("predictions/0.png").exists()
    code, out, err = ask("predict", image, "--pretrained", "mnist", "--out", "other")
    assert (code, err) == (0, "")
    assert "mnist: capsnet_small on mnist, test accuracy 99.12%" in out
    assert out.rstrip().endswith("reconstructions: other")
    assert Path("other/0.png").exists()


def is_coloured(file: str) -> bool:
    """Whether anything in a picture is far from grey; its words are only nearly so."""
    with Image.open(file) as picture:
        colours: Any = picture.convert("RGB").getcolors(1 << 24)
    return any(max(colour) - min(colour) > 80 for _, colour in colours)


def test_two_classes_per_image(shipped: Path, image: Path, ask, ask_json) -> None:
    ship(shipped, "multimnist", num_labels=2)
    (entry,) = ask_json("predict", "--pretrained", "multimnist", image)["predictions"]
    assert entry["labels"] == [name for name, _ in entry["top"][:2]]
    assert entry["label"] == entry["labels"][0]
    assert is_coloured(entry["reconstruction"])
    out = ask("predict", "--pretrained", "multimnist", image)[1]
    assert out.splitlines()[1].split() == ["image", "label", "label", "next"]
    # Two labels are the reason, not a missing validation split.
    assert "2 labels" in out
    assert "validation" not in out
    (single,) = ask_json("predict", "--pretrained", "mnist", image)["predictions"]
    assert not is_coloured(single["reconstruction"])


def test_document_says_whether_there_are_probabilities(run: Path, image: Path, ask_json, tmp_path: Path) -> None:
    assert "calibrated" in ask_json("predict", run, image)["note"]
    copy = shutil.copytree(run, tmp_path / "without")
    with safe_open(run / "weights.safetensors", "pt") as stored:
        state = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    save_file(state, copy / "weights.safetensors")
    document = ask_json("predict", copy, image)
    assert document["predictions"][0]["probabilities"] is None
    assert "validation split" in document["note"]


def test_decoder_that_was_not_trained_rejects_nothing(pictures: Path, tmp_path: Path) -> None:
    run = train_in(tmp_path / "plain", f"data.options.path={pictures}", "trainer.epochs=1", "loss.reconstruction=0")
    assert set(json.loads((run / "run.json").read_text())["rejection"]["thresholds"]) == {"activation"}


def test_run_with_two_classes_per_image(run: Path, image: Path, ask_json, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "pairs")
    record = json.loads((copy / "run.json").read_text())
    assert record["num_labels"] == 1
    (copy / "run.json").write_text(json.dumps({**record, "num_labels": 2}))
    (entry,) = ask_json("predict", copy, image)["predictions"]
    assert entry["labels"] == [name for name, _ in entry["top"][:2]]


def test_stereo_network_rejects_single_image(shipped: Path, image: Path, ask) -> None:
    ship(shipped, "smallnorb", model="cnn_small", options={}, image_shape=(2, 28, 28))
    refused(ask, "predict", "--pretrained", "smallnorb", image, about=["predict:", "stereo pairs"])
    ship(shipped, "four", model="cnn_small", options={}, image_shape=(4, 28, 28))
    refused(ask, "predict", "--pretrained", "four", image, about=["predict:", "got 4 channels"])


def test_run_and_weights_exclude_each_other(shipped: Path, run: Path, image: Path, ask) -> None:
    words = f"predict: expected a run or --pretrained, got both ('{run}', 'mnist')\n"
    assert ask("predict", run, image, "--pretrained", "mnist") == (2, "", words)
    words = "unknown pretrained weights 'mnits'; did you mean 'mnist'?\n"
    assert ask("predict", image, "--pretrained", "mnits") == (2, "", words)


def test_image_of_no_class_is_named_with_the_reason(run: Path, image: Path, ask, ask_json, tmp_path: Path) -> None:
    strict = tmp_path / "strict"
    shutil.copytree(run, strict)
    record = json.loads((run / "run.json").read_text())
    assert set(record["rejection"]["thresholds"]) == {"activation", "reconstruction"}
    for threshold, rejected in ((-1.0, True), (0.0, False)):
        record["rejection"]["thresholds"] = {"activation": threshold}
        (strict / "run.json").write_text(json.dumps(record))
        reason = ask_json("predict", strict, image)["predictions"][0]["rejected"]
        assert (reason is not None) == rejected
        assert ("probably none of the classes" in ask("predict", strict, image)[1]) == rejected
    record["rejection"] = {"thresholds": 3}
    (strict / "run.json").write_text(json.dumps(record))
    refused(ask, "predict", strict, image, about=["rejection:"])
