"""Evaluations as files: `evaluation.json` with the summary, `predictions.safetensors` with every image."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from torchcaps._files import MAX_TENSORS, open_regular, read_bounded, write_bytes, write_text
from torchcaps.data import ImageDataset
from torchcaps.evaluation.evaluate import Evaluation

SUMMARY, PREDICTIONS = "evaluation.json", "predictions.safetensors"


def save_evaluation(evaluation: Evaluation, folder: Path, *, weights: Path | None = None) -> None:
    """Write an evaluation into a folder.

    Args:
        evaluation: The evaluation.
        folder: The folder.
        weights: File of the weights that were evaluated; `load_evaluation` compares its hash.

    Example:
        >>> save_evaluation(evaluation, Path("runs/NAME"))  # doctest: +SKIP
    """
    tensors = {
        "activations": evaluation.activations.contiguous(),
        "labels": evaluation.labels.contiguous(),
        "confusion": evaluation.confusion.contiguous(),
    }
    write_bytes(folder / PREDICTIONS, save(tensors))
    summary = {**evaluation.summary(), "weights_sha256": _digest(weights)}
    write_text(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")


def load_evaluation(folder: Path, data: ImageDataset, *, weights: Path | None = None) -> Evaluation | None:
    """Read an evaluation from a folder.

    Args:
        folder: The folder.
        data: The data set that was evaluated.
        weights: File of the weights.

    Returns:
        The evaluation; None if there is none, or it belongs to other data or weights.

    Example:
        >>> load_evaluation(Path("runs/NAME"), data)  # doctest: +SKIP
    """
    try:
        summary = json.loads(read_bounded(folder / SUMMARY).decode("utf-8"))
        same = summary["weights_sha256"] == _digest(weights)
        if not same or (summary["data"], summary["split"], summary["count"]) != (data.name, data.split, len(data)):
            return None
        # The library would wait for the writer of a pipe.
        open_regular(folder / PREDICTIONS, MAX_TENSORS).close()
        tensors = load_file(folder / PREDICTIONS)
        activations, labels, confusion = (tensors[name] for name in ("activations", "labels", "confusion"))
        loss = None if summary.get("loss") is None else float(summary["loss"])
        # A model that does not classify has no confusion.
        classes = data.num_classes if loss is None else 0
        if not _belong(data, activations, labels) or confusion.shape != (classes, classes):
            return None
        temperature = summary.get("metrics", {}).get("temperature")
        if temperature is not None and not 0 < float(temperature) < math.inf:
            return None
        return Evaluation(data, activations, labels, confusion, float(summary["seconds"]), loss, temperature)
    except (AttributeError, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, SafetensorError):
        return None


def _belong(data: ImageDataset, activations: Tensor, labels: Tensor) -> bool:
    """Whether shapes and types are those of an evaluation of the data."""
    # A model that does not classify has activations of another number of capsules.
    shapes = activations.dim() == 2 and labels.dim() in (1, 2) and len(activations) == len(labels) == len(data)
    if not shapes or not activations.is_floating_point() or labels.is_floating_point():
        return False
    return not len(labels) or 0 <= int(labels.min()) <= int(labels.max()) < data.num_classes


def _digest(file: Path | None) -> str | None:
    if file is None:
        return None
    with open_regular(file, MAX_TENSORS) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
