from __future__ import annotations

from pathlib import Path

import pytest
import torch

from refusing import refused
from torchcaps.integrations import OnnxModel

from .conftest import CLASSES


def test_run_to_onnx(run: Path, pictures: Path, ask_json, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    document = ask_json("export", run, "--out", file)
    assert document["path"] == str(file)
    assert document["classes"] == list(CLASSES)
    assert document["difference"] < 1e-3
    assert OnnxModel(file).class_names == CLASSES
    image = pictures / CLASSES[1] / "3.png"
    ours, theirs = (ask_json("predict", source, image)["predictions"][0] for source in (file, run))
    assert ours["label"] == theirs["label"]
    assert ours["activations"] == pytest.approx(theirs["activations"], abs=1e-4)
    assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-3)


def test_default_file_is_in_the_run(run: Path, ask) -> None:
    code, out, err = ask("export", run, "--to", "pt2")
    assert (code, err) == (0, "")
    assert str(run / "model.pt2") in out
    assert "probabilities, activations, poses" in out
    assert torch.export.load(run / "model.pt2") is not None


def test_bundled_weights(ask_json, tmp_path: Path) -> None:
    document = ask_json("export", "--pretrained", "mnist_cnn", "--int8", "--out", tmp_path / "a.onnx")
    assert document["format"] == "onnx"
    assert document["size"] == (tmp_path / "a.onnx").stat().st_size


def test_mistakes(run: Path, ask, tmp_path: Path) -> None:
    refused(ask, "export", about=["RUN", "--pretrained"])
    refused(ask, "export", run, "--pretrained", "mnist", about=["RUN", "both"])
    refused(ask, "export", run, "--to", "tflite", about=["tflite"])
    refused(ask, "export", run, "--to", "pt2", "--int8", about=["int8", "pt2"])
    refused(ask, "export", tmp_path / "none", about=["none"])
