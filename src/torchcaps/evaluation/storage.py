"""Evaluations as files: `evaluation.json` with the summary, `predictions.safetensors` with every image."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from torchcaps._files import write_bytes, write_text
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
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        same = summary["weights_sha256"] == _digest(weights)
        if not same or (summary["data"], summary["split"], summary["count"]) != (data.name, data.split, len(data)):
            return None
        tensors = load_file(folder / PREDICTIONS)
        activations, labels, confusion = (tensors[name] for name in ("activations", "labels", "confusion"))
        if len(activations) != len(data) or len(labels) != len(data):
            return None
        loss, temperature = summary.get("loss"), summary.get("metrics", {}).get("temperature")
        return Evaluation(data, activations, labels, confusion, float(summary["seconds"]), loss, temperature)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError):
        return None


def _digest(file: Path | None) -> str | None:
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
