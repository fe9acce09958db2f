"""Measure exported networks: `python scripts/measure_export.py speed|int8 [--folder=DIR] NAME...`.

`speed` compares registered models with their ONNX files, one thread each. `int8` evaluates bundled weights as float32
and as 8-bit integers on their test images. Each result is stored in results/export.json, beside those of the others.
Files are kept in DIR: those that are there are not exported again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from torchcaps.evaluation import embedded_data, predict_labels, pretrained_data
from torchcaps.integrations import OnnxModel, export
from torchcaps.integrations.exporter import quantize
from torchcaps.models import ImageModel, create_model, list_models, list_pretrained, pretrained_card
from torchcaps.train.environment import provenance

FILE = Path(__file__).resolve().parent.parent / "results" / "export.json"
BATCHES = (1, 64)
# Seconds of both calls at one batch size, and the most test images of one network.
SECONDS, IMAGES = 1.0, 2000


def measure_speed(name: str, folder: Path) -> dict[str, Any]:
    """Return milliseconds per batch of a model and of its ONNX file, for inputs of the default shape in ten classes."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    loaded = _load(model, folder / f"{name}.onnx")
    row: dict[str, Any] = {"clock": "processor"}
    for batch in BATCHES:
        images = torch.rand(batch, *model.image_shape)
        with torch.inference_mode():
            ours, theirs = _milliseconds((model, loaded), images)
        row[str(batch)] = {"ours_ms": round(ours, 3), "onnx_ms": round(theirs, 3)}
    return row


def measure_int8(name: str, folder: Path) -> dict[str, Any]:
    """Return size and test accuracy of bundled weights as float32 and as 8-bit integers."""
    card = pretrained_card(name)
    try:
        data, source = pretrained_data(card), "test images of the data set"
    except Exception as error:
        data, source = embedded_data(card), "bundled test images"
        if data is None:
            raise error from None
    data = data[:: max(1, len(data) // IMAGES)]
    model = create_model(card.model, pretrained=name)
    row: dict[str, Any] = {"model": card.model, "images": len(data), "source": source}
    for kind in ("float32", "int8"):
        file = folder / f"{name}-{kind}.onnx"
        if kind == "int8" and not file.exists():
            file.write_bytes(quantize((folder / f"{name}-float32.onnx").read_bytes()))
        loaded, correct = _load(model, file), 0
        for start in range(0, len(data), 50):
            images, labels = zip(*(data[place] for place in range(start, min(start + 50, len(data)))), strict=True)
            truth = torch.stack([torch.as_tensor(label).reshape(-1) for label in labels])  # [B, labels]
            found = predict_labels(loaded(torch.stack(images)).activations, truth.shape[1])  # [B] or [B, labels]
            found = found.reshape(len(truth), -1).sort(dim=1).values
            correct += int((found == truth.sort(dim=1).values).all(dim=1).sum())
        row[kind] = {"accuracy": correct / len(data), "bytes": file.stat().st_size}
    return row


def _load(model: ImageModel, file: Path) -> OnnxModel:
    if not file.exists():
        export(model, file)
    return OnnxModel(file, threads=1)


def _milliseconds(runs: Sequence[Callable[[torch.Tensor], Any]], images: torch.Tensor) -> list[float]:
    """Return the shortest processor time of a call of each, among those of a second in all and of at least three.

    The calls take turns, so that other work on the machine slows all of them. One thread each: processor time is the
    time that the call would take alone.
    """
    for run in runs:
        run(images)
    times: list[list[float]] = [[] for _ in runs]
    while len(times[0]) < 3 or sum(map(sum, times)) < SECONDS:
        for run, measured in zip(runs, times, strict=True):
            begun = time.process_time()
            run(images)
            measured.append(time.process_time() - begun)
    return [1000 * min(measured) for measured in times]


def main(words: list[str], file: Path = FILE) -> None:
    """Measure what the arguments name and store it."""
    what, *rest = words
    folders = [word.removeprefix("--folder=") for word in rest if word.startswith("--folder=")]
    names = [word for word in rest if not word.startswith("--")]
    if what == "speed":
        measure, names = measure_speed, names or [name for name in list_models() if create_model(name).is_classifier]
    else:
        measure, names = measure_int8, names or list_pretrained()
    folder = Path(folders[0] if folders else "exported")
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name in names:
        row = measure(name, folder)
        table = json.loads(file.read_text()) if file.exists() else {}
        table.setdefault(what, {})[name] = {**row, **provenance()}
        file.write_text(json.dumps(table, indent=1) + "\n")
        print(name, row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
