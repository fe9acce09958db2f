"""Exported files: every model, the outputs, the metadata, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch

import torchcaps as tc
from model_shapes import fit_shape, mark_slow
from raising import raises_about
from torchcaps.errors import CheckpointError, ConfigError, ShapeError, TorchcapsError
from torchcaps.integrations import OnnxModel, export, exporter
from torchcaps.models import ImageModel, create_model, list_models
from torchcaps.ops import _export

SHAPE = (1, 20, 20)
CLASSIFIERS = [name for name in list_models() if create_model(name, num_classes=3, device="meta").is_classifier]


def make(name: str) -> ImageModel:
    torch.manual_seed(0)
    return create_model(name, image_shape=fit_shape(name, SHAPE), num_classes=3).eval()


def operators(graph: Any) -> set[str]:
    """Return the kinds of nodes of an ONNX graph and of the graphs inside of it."""
    found = {node.op_type for node in graph.node}
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return found.union(*map(operators, inner))


# The graphs of the others take the exporter ten seconds to minutes.
QUICK = {"backbone_capsnet", "capsnet_small", "cnn_small", "token_capsnet"}


@pytest.mark.parametrize("name", mark_slow(CLASSIFIERS, set(CLASSIFIERS) - QUICK))
def test_every_model_runs_in_onnxruntime(name: str, tmp_path: Path) -> None:
    model, file = make(name), tmp_path / "net.onnx"
    done = export(model, file, class_names=("a", "b", "c"))
    assert (done.path, done.format, done.size) == (file, "onnx", file.stat().st_size)
    assert done.difference < 1e-3
    # ONNX Runtime with several threads loses parts of sums where an index of a scatter repeats.
    assert not {kind for kind in operators(onnx.load(file).graph) if kind.startswith("Scatter")}
    images = torch.rand(3, *model.image_shape)
    loaded = OnnxModel(file, threads=1)
    results = loaded.run(images)
    assert tuple(results) == done.outputs == ("probabilities", "activations", "poses")
    assert (loaded.class_names, loaded.image_shape) == (("a", "b", "c"), model.image_shape)
    with torch.no_grad():
        capsules = model(images)
    torch.testing.assert_close(results["activations"], capsules.activations, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(results["poses"], capsules.poses, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(results["probabilities"].sum(dim=1), torch.ones(3))


def test_plain_onnx_export_needs_no_backend(tmp_path: Path) -> None:
    file = tmp_path / "plain.onnx"
    with exporter._quiet():
        torch.onnx.export(make("capsnet_small"), (torch.rand(2, *SHAPE),), file, dynamo=True, verbose=False)
    assert file.stat().st_size > 0


class Layer(torch.nn.Module):
    """A convolutional layer whose parents at all positions compete."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = tc.nn.CapsConv2d(2, 3, 3, 1, routing="dynamic", competition="global")

    def forward(self, poses: torch.Tensor, activations: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.layer(tc.Capsules(poses, activations)))


def test_large_grids_have_no_constants_inside_of_their_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    # Samples are routed one after the other, as those with many votes are.
    monkeypatch.setattr(_export, "LARGE", 1)
    layer, batch = Layer().eval(), torch.export.Dim("batch", min=1)
    example = (torch.randn(2, 4, 4, 2, 16), torch.rand(2, 4, 4, 2))
    with exporter._quiet(), torch.no_grad():
        program = torch.export.export(layer, example, dynamic_shapes=({0: batch}, {0: batch}), strict=False)
        assert "scan" in str(program.graph)
        exported = torch.onnx.export(program, dynamo=True, external_data=False, verbose=False)
        assert exported is not None
        model = exported.model_proto
        exporter._drop_unused(model.graph)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        poses, activations = torch.randn(5, 4, 4, 2, 16), torch.rand(5, 4, 4, 2)
        names = [entry.name for entry in session.get_inputs()]
        results = session.run(None, dict(zip(names, (poses.numpy(), activations.numpy()), strict=True)))
        for ours, theirs in zip(layer(poses, activations), results, strict=True):
            torch.testing.assert_close(torch.from_numpy(theirs), ours, rtol=1e-4, atol=1e-5)


def test_probabilities_have_the_temperature(tmp_path: Path) -> None:
    model = make("capsnet_small")
    model.temperature = 0.25
    export(model, tmp_path / "net.onnx")
    images = torch.rand(2, *SHAPE)
    results = OnnxModel(tmp_path / "net.onnx").run(images)
    torch.testing.assert_close(results["probabilities"], tc.nn.Scores(model)(images), rtol=1e-4, atol=1e-5)


def test_decoder_is_an_output(tmp_path: Path) -> None:
    model = make("capsnet_small")
    assert export(model, tmp_path / "net.onnx", decoder=True).outputs[-1] == "reconstruction"
    images = torch.rand(2, *SHAPE)
    with torch.no_grad():
        expected = model.decode(model(images))
    results = OnnxModel(tmp_path / "net.onnx").run(images)
    torch.testing.assert_close(results["reconstruction"], expected, rtol=1e-3, atol=1e-4)


def test_int8_is_smaller_and_close(tmp_path: Path) -> None:
    model = create_model("capsnet_small", pretrained="mnist_dynamic")
    whole, small = export(model, tmp_path / "f.onnx"), export(model, tmp_path / "i.onnx", int8=True)
    assert small.size < 0.7 * whole.size
    data = tc.load_data("digits", "test")
    images = torch.stack([data[number][0] for number in range(64)])
    expected = OnnxModel(whole.path)(images).activations.argmax(dim=1)
    assert (OnnxModel(small.path)(images).activations.argmax(dim=1) == expected).float().mean() > 0.95


def test_pt2_is_loaded_without_torchcaps_code(tmp_path: Path) -> None:
    model, extra = make("capsnet_small"), {exporter.METADATA: ""}
    export(model, tmp_path / "net.pt2", class_names=("a", "b", "c"))
    program = torch.export.load(tmp_path / "net.pt2", extra_files=extra)
    assert json.loads(extra[exporter.METADATA])["class_names"] == ["a", "b", "c"]
    assert not [node for node in program.graph.nodes if "torchcaps" in str(node.target)]
    images = torch.rand(5, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(images)[1], model(images).activations, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_aoti_package(tmp_path: Path) -> None:
    model = make("cnn_small")
    done = export(model, tmp_path / "net.pt2", to="aoti")
    assert done.format == "aoti"
    loaded = torch._inductor.aoti_load_package(str(done.path))
    images = torch.rand(3, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(loaded(images)[1], model(images).activations, rtol=1e-3, atol=1e-4)


def test_training_mode_is_kept(tmp_path: Path) -> None:
    model = make("cnn_small").train()
    export(model, tmp_path / "net.pt2")
    assert model.training


def test_difference_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "TOLERANCE", -1.0)
    with raises_about(TorchcapsError, "export", "difference"):
        export(make("cnn_small"), tmp_path / "net.pt2")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    model = make("capsnet_small")
    with raises_about(ConfigError, "path", "net.txt"):
        export(model, tmp_path / "net.txt")
    with raises_about(ConfigError, "to", "tflite"):
        export(model, tmp_path / "net.onnx", to="tflite")
    with raises_about(ConfigError, "int8", "pt2"):
        export(model, tmp_path / "net.pt2", int8=True)
    with raises_about(ConfigError, "class_names", 2):
        export(model, tmp_path / "net.onnx", class_names=("a", "b"))
    with raises_about(ConfigError, "decoder", "CNN"):
        export(make("cnn_small"), tmp_path / "net.onnx", decoder=True)
    with raises_about(ConfigError, "classifier", "TransformingAutoencoder"):
        export(make("transforming_autoencoder"), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x07"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(content)
    with raises_about(CheckpointError, "model", "net.onnx"):
        OnnxModel(tmp_path / "net.onnx")
    with raises_about(CheckpointError, "model", "none.onnx"):
        OnnxModel(tmp_path / "none.onnx")


def test_onnx_file_of_others_is_refused(tmp_path: Path) -> None:
    with exporter._quiet():
        torch.onnx.export(torch.nn.Linear(2, 1), (torch.rand(2, 2),), tmp_path / "net.onnx", dynamo=True, verbose=False)
    with raises_about(CheckpointError, "model", "torchcaps"):
        OnnxModel(tmp_path / "net.onnx")


def test_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    export(make("cnn_small"), tmp_path / "net.onnx")
    with raises_about(ShapeError, "images", (1, 3, 9, 9)):
        OnnxModel(tmp_path / "net.onnx")(torch.rand(1, 3, 9, 9))
