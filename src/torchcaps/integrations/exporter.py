"""Export of a trained network to one file that runs without torchcaps: ONNX, torch.export or AOTInductor."""

from __future__ import annotations

import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from torchcaps import __version__
from torchcaps._files import write_bytes
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.integrations._require import require
from torchcaps.models import ImageModel
from torchcaps.nn import Scores, log_probabilities

ExportFormat = Literal["onnx", "pt2", "aoti"]
EXPORT_FORMATS: tuple[str, ...] = get_args(ExportFormat)
OUTPUTS = ("probabilities", "activations", "poses")
# Batch sizes that the exported program is compared with the network at.
BATCHES = (1, 2, 7)
# Largest difference of probabilities and activations; poses may differ by as much in relation to the largest one.
TOLERANCE, INT8_TOLERANCE = 1e-3, 0.5
METADATA = "torchcaps.json"

Program = Callable[[Tensor], Sequence[Tensor]]


class Exported(NamedTuple):
    """What `export` wrote.

    Args:
        path: The file.
        format: `onnx`, `pt2` or `aoti`.
        size: Size of the file in bytes.
        outputs: Names of the outputs, in order.
        difference: Largest difference of the activations to those of the network, over batches of 1, 2 and 7 images.
    """

    path: Path
    format: str
    size: int
    outputs: tuple[str, ...]
    difference: float


class _Outputs(nn.Module):
    """A network with the outputs of an exported file: probabilities, activations, poses and the reconstruction."""

    def __init__(self, model: ImageModel, decoder: bool) -> None:
        super().__init__()
        self.model, self.decoder = model, decoder
        self.temperature = Scores(model).temperature

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        capsules = self.model(images)
        probabilities = log_probabilities(capsules.activations, self.temperature).exp()  # [B, J]
        # A copy: two outputs of a graph must not be one tensor.
        outputs = (probabilities, capsules.activations + 0.0, capsules.poses)
        return (*outputs, self.model.decode(capsules)) if self.decoder else outputs


def export(
    model: ImageModel,
    path: str | Path,
    *,
    to: str | None = None,
    int8: bool = False,
    decoder: bool = False,
    class_names: Sequence[str] = (),
    num_labels: int = 1,
) -> Exported:
    """Write a network to a file that runs without torchcaps.

    The input is `images` [B, C, H, W] with values in [0, 1], the batch size is free. The outputs are `probabilities`
    [B, J] (calibrated if the training fitted a temperature), `activations` [B, J], `poses` [B, J, D] and, with
    `decoder`, `reconstruction` [B, C, H, W]. Image shape, class names and temperature are stored as metadata. The file
    counts only after it gave the same results as the network on batches of 1, 2 and 7 images.

    Args:
        model: The network; it is exported in evaluation mode.
        path: File to write. An existing file is replaced.
        to: `onnx` for ONNX Runtime, `pt2` for `torch.export.load`, `aoti` for a compiled package that needs no Python.
            Default: the format of the suffix, .onnx or .pt2.
        int8: Store the weights of convolutions and linear layers as 8-bit integers, one scale per channel; routing
            stays in float32. ONNX only.
        decoder: Export the decoder as well.
        class_names: Names of the classes.
        num_labels: Labels per image; 2 for overlapping digits.

    Shape:
        images [B, C, H, W]; probabilities and activations [B, J]; poses [B, J, D].

    Returns:
        The file, its size and how closely it follows the network.

    Raises:
        ConfigError: If the format is unknown, a package is missing, or the network has no classes or no decoder.
        TorchcapsError: If the exported program does not follow the network; nothing is written then.

    Example:
        >>> import tempfile
        >>> from torchcaps import create_model
        >>> file = Path(tempfile.mkdtemp()) / "net.pt2"
        >>> export(create_model("cnn_small"), file).outputs
        ('probabilities', 'activations', 'poses')
    """
    path = Path(path)
    kind = _format(path, to)
    _check(model, kind, int8, decoder, class_names)
    names = (*OUTPUTS, "reconstruction") if decoder else OUTPUTS
    training = model.training
    try:
        module = _Outputs(model.eval(), decoder).eval()
        described = _describe(model, class_names, num_labels)
        metadata = json.dumps({**described, "outputs": list(names)})
        with _quiet(), torch.no_grad():
            program = _trace(module)
            content, run = _WRITERS[kind](program, metadata, int8)
            difference = _compare(module, run, INT8_TOLERANCE if int8 else TOLERANCE)
    finally:
        model.train(training)
    write_bytes(path, content)
    return Exported(path, kind, len(content), names, difference)


def _format(path: Path, to: str | None) -> str:
    suffixes = {".onnx": "onnx", ".pt2": "pt2"}
    kind = suffixes.get(path.suffix) if to is None else to
    if kind is None:
        raise ConfigError(f"path: expected the suffix .onnx or .pt2, or a format, got '{path}'")
    if kind not in EXPORT_FORMATS:
        raise ConfigError(f"to: expected one of {', '.join(EXPORT_FORMATS)}, got '{kind}'")
    return kind


def _check(model: ImageModel, kind: str, int8: bool, decoder: bool, class_names: Sequence[str]) -> None:
    if int8 and kind != "onnx":
        raise ConfigError(f"int8: expected the format 'onnx', got '{kind}'")
    if decoder and model.decoder is None:
        raise ConfigError(f"decoder: expected a network with a decoder, got {type(model).__name__} without one")
    if class_names and len(class_names) != model.num_classes:
        raise ConfigError(f"class_names: expected {model.num_classes} names, got {len(class_names)}")


def _describe(model: ImageModel, class_names: Sequence[str], num_labels: int) -> dict[str, Any]:
    """Return what a user of the file must know about its input and outputs."""
    return {
        "torchcaps": __version__,
        "model": type(model).__name__,
        "image_shape": list(model.image_shape),
        "image_range": [0, 1],
        "class_names": list(class_names) or [str(number) for number in range(model.num_classes)],
        "num_labels": num_labels,
        # None: the probabilities are not calibrated.
        "temperature": model.temperature,
    }


def _trace(module: _Outputs) -> torch.export.ExportedProgram:
    # Two images: with one, the batch size would be taken for a constant.
    images = _images(module, 2)
    return torch.export.export(
        module, (images,), dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}}, strict=False
    )


def _images(module: _Outputs, batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(batch)
    like = next(module.parameters())
    return torch.rand(batch, *module.model.image_shape, generator=generator).to(like.device, like.dtype)


def _compare(module: _Outputs, run: Program, tolerance: float) -> float:
    """Return the largest difference of the activations; raise if any output differs by more than the tolerance."""
    largest = 0.0
    for batch in BATCHES:
        images = _images(module, batch)
        for place, (ours, theirs) in enumerate(zip(module(images), run(images), strict=True)):
            scale = 1.0 if place < 2 else max(1.0, float(ours.abs().max()))
            difference = float((ours.cpu() - theirs.cpu()).abs().max()) / scale
            # Not `>`: a difference of NaN must fail.
            if not difference <= tolerance:
                raise TorchcapsError(
                    f"export: expected the results of the network, got a difference of {difference:.2g} "
                    f"(output {place}, batch {batch}); nothing was written"
                )
            largest = max(largest, difference) if place == 1 else largest
    return largest


def _onnx(program: torch.export.ExportedProgram, metadata: str, int8: bool) -> tuple[bytes, Program]:
    for package in ("onnx", "onnxscript"):
        require(package, "export")
    runtime = require("onnxruntime", "export")
    names = json.loads(metadata)["outputs"]
    exported = torch.onnx.export(
        program, dynamo=True, external_data=False, verbose=False, input_names=["images"], output_names=names
    )
    assert exported is not None
    exported.model.metadata_props["torchcaps"] = metadata
    model = exported.model_proto
    _drop_unused(model.graph)
    content = model.SerializeToString()
    if int8:
        content = quantize(content)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return content, lambda images: [torch.from_numpy(out) for out in session.run(None, {"images": images.numpy()})]


def _drop_unused(graph: Any) -> set[str]:
    """Remove constants that nothing reads, of which ONNX Runtime would warn; return the names that the graph reads."""
    read = {output.name for output in graph.output}
    for node in graph.node:
        read.update(node.input)
        for attribute in node.attribute:
            read |= _drop_unused(attribute.g) if attribute.HasField("g") else set()
    kept = [constant for constant in graph.initializer if constant.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return read


def quantize(content: bytes) -> bytes:
    """Return an ONNX file with the weights of its convolutions and linear layers as 8-bit integers."""
    quantization = require("onnxruntime.quantization", "export")
    graph = require("onnx", "export").load_from_string(content)
    # Shapes are inferred again: those that the exporter noted do not always fit its optimised graph.
    del graph.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "int8.onnx")
        # The quantizer turns each Gemm into a MatMul first. Those that are there before belong to the routing.
        routing = [node.name for node in graph.graph.node if node.op_type == "MatMul"]
        kinds = ["Conv", "MatMul"]
        quantization.quantize_dynamic(
            graph, file, per_channel=True, op_types_to_quantize=kinds, nodes_to_exclude=routing
        )
        return file.read_bytes()


def _pt2(program: torch.export.ExportedProgram, metadata: str, int8: bool) -> tuple[bytes, Program]:
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={METADATA: metadata})
    loaded = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    return buffer.getvalue(), lambda images: loaded(images)


def _aoti(program: torch.export.ExportedProgram, metadata: str, int8: bool) -> tuple[bytes, Program]:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    with tempfile.TemporaryDirectory() as folder:
        file = aoti_compile_and_package(
            program,
            package_path=str(Path(folder, "net.pt2")),
            inductor_configs={"aot_inductor.metadata": {METADATA: metadata}},
        )
        loaded = aoti_load_package(file)
        return Path(file).read_bytes(), lambda images: loaded(images)


_WRITERS = {"onnx": _onnx, "pt2": _pt2, "aoti": _aoti}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the remarks of the exporters about themselves away from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
