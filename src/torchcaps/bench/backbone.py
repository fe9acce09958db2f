"""A training step of `backbone_capsnet` on large images, beside the same backbone with a linear head, and loading."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from torchcaps._files import write_bytes
from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench.dynamic import check_kernel
from torchcaps.data import Augment, BatchLoader, load_data
from torchcaps.models import create_model
from torchcaps.nn import MarginLoss

# `layers` is the number in the name of the backbone.
BASE: Point = {"batch": 32, "side": 224, "layers": 10}
# What `torchcaps train DIR` chooses for colour images.
AUGMENT = Augment(
    resized_crop=0.4, rotate=8.0, erase=0.25, brightness=0.1, contrast=0.2, flip=True, saturation=0.2, hue=0.02
)
CLASSES = 10


def step(name: str, point: Point) -> Tasks:
    """Prepare a training step: forward, margin loss, backward, update.

    Args:
        name: Name of the model.
        point: Sizes of the measurement.

    Returns:
        The task.
    """
    train = _trainer(name, point)
    shape = (point["batch"], 3, point["side"], point["side"])
    images, labels = torch.rand(shape), torch.arange(point["batch"]) % CLASSES
    return {"step": lambda: train(images, labels)}


def fed(point: Point) -> Tasks:
    """Prepare a training step with a new batch of JPEG files, which a worker reads and augments."""
    train, batches = _trainer("backbone_capsnet", point), _batches(point, workers=1)
    return {"step": lambda: train(*next(batches))}


def decoded(point: Point) -> Tasks:
    """Read a batch of JPEG files from disk and augment it, in the process that asks for it."""
    batches = _batches(point)
    return {"step": lambda: next(batches)}


def _trainer(name: str, point: Point) -> Callable[[Tensor, Tensor], None]:
    """Return a training step of a model on images and labels."""
    torch.manual_seed(0)
    model = create_model(name, (3, point["side"], point["side"]), CLASSES, backbone=f"resnet{point['layers']}")
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    margin = MarginLoss()

    def train(images: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        margin(model(images), labels).backward()
        optimiser.step()

    return train


def _batches(point: Point, workers: int = 0) -> Iterator[Any]:
    """Yield batches of JPEG files without end; the files are removed with the iterator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Enough that a worker is seldom started again; each of two classes needs an image for every split.
        write_photographs(folder, max(8, 20 * point["batch"]), point["side"])
        data = load_data("folder", "train", path=folder, image_size=point["side"], memory_mb=0)
        batches = BatchLoader(data, point["batch"], shuffle=True, augment=AUGMENT, workers=workers)
        while True:
            yield from batches


def write_photographs(folder: Path, count: int, side: int) -> None:
    """Write smooth random images of two classes as JPEG files, a quarter larger than a side.

    Args:
        folder: Folder of the classes.
        count: Number of images.
        side: Side of the images of the network.
    """
    rng = np.random.default_rng(0)
    size = side + side // 4
    for number in range(count):
        target = folder / str(number % 2) / f"{number:05d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), np.uint8))
        content = io.BytesIO()
        coarse.resize((size, size), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
        write_bytes(target, content.getvalue())


CASES.add(
    "backbone",
    Case(
        title="A training step at 224 px: a capsule head and a linear head on one backbone, and loading its batch",
        candidates=(
            Candidate("backbone_capsnet", partial(step, "backbone_capsnet")),
            Candidate("backbone_linear", partial(step, "backbone_linear")),
            Candidate("backbone_capsnet, batches of JPEG files from a worker", fed),
            Candidate("batch of JPEG files, augmented", decoded),
        ),
        points=one_axis_sweep(BASE, layers=(8, 18)),
        quick=({**BASE, "batch": 8, "layers": 8},),
        check=check_kernel,
    ),
)
