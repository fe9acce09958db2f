from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from refusing import refused

from .conftest import CLASSES


@pytest.fixture
def image(pictures: Path) -> Path:
    return pictures / CLASSES[2] / "0.png"


def test_figure_maps_and_children(run: Path, image: Path, ask: Any, ask_json: Any, tmp_path: Path) -> None:
    document = ask_json("explain", run, image, "--out", tmp_path)
    (entry,) = document["explanations"]
    assert entry["label"] in CLASSES
    assert len(entry["children"]) == 8
    assert set(entry["children"][0]["coupling"]) == set(CLASSES)
    stored = json.loads((tmp_path / "routing.json").read_text())["explanations"][0]
    assert sum(map(sum, stored["map"])) == pytest.approx(1, abs=1e-3)
    with Image.open(document["figure"]) as figure:
        assert figure.width > 100
    code, out, err = ask("explain", run, image, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert "most coupled to" in out
    assert str(tmp_path / "routing.png") in out


def test_other_class_and_method(run: Path, image: Path, ask_json: Any, tmp_path: Path) -> None:
    words = ("explain", run, image, image, "--out", tmp_path, "--method", "gradcam", "--label", CLASSES[1])
    document = ask_json(*words)
    assert [entry["label"] for entry in document["explanations"]] == [CLASSES[1]] * 2
    assert document["explanations"][0]["children"] is None
    assert (tmp_path / "gradcam.png").exists()


def test_samples_of_the_test_split(run: Path, ask_json: Any, ask: Any, tmp_path: Path) -> None:
    document = ask_json("explain", run, "--test", "0,3", "--out", tmp_path)
    assert [entry["image"] for entry in document["explanations"]] == ["test 0", "test 3"]
    refused(ask, "explain", run, "--test", "0,x", about=["--test", "0,x"])
    refused(ask, "explain", run, "--test", "99999", about=["--test", "99999"])
    refused(ask, "explain", run, "a.png", "--test", "0", about=["--test", "a.png"])


def test_network_without_routing(cnn_run: Path, image: Path, ask: Any, ask_json: Any, tmp_path: Path) -> None:
    refused(ask, "explain", cnn_run, image, "--out", tmp_path, about=["method", "CNN"])
    assert ask_json("explain", cnn_run, image, "--out", tmp_path, "--method", "ig")["method"] == "ig"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ("RUN", "IMAGE")),
        (("--pretrained", "mnist_dynamic"), ("IMAGE",)),
        (("--pretrained", "smallnorb", "IMAGE"), ("stereo", "--test")),
        (("--pretrained", "mnist_dynamic", "IMAGE", "--label", "ten"), ("--label", "ten")),
        (("--pretrained", "mnist_dynamic", "IMAGE", "--method", "lime"), ("--method", "lime")),
        (("--pretrained", "mnist_dynamic", "no/such.png"), ("no/such.png",)),
        (("--pretrained", "mnist_dynamic", *["IMAGE"] * 13), ("12", "13")),
    ],
)
def test_mistakes(image: Path, ask: Any, words: tuple[str, ...], names: tuple[str, ...]) -> None:
    refused(ask, "explain", *[image if word == "IMAGE" else word for word in words], about=names)
