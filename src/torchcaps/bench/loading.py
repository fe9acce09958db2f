"""Loading of batches, beside the training step of `capsnet_small` that uses them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks
from torchcaps.bench.capsnet import training_step
from torchcaps.data import Augment, BatchLoader, load_data
from torchcaps.models import create_model

PAPER: Point = {"batch": 128}


def shifted(point: Point) -> Tasks:
    """Load a batch of the bundled digits from memory, as floats, shifted by up to 2 pixels."""
    loader = BatchLoader(load_data("digits"), point["batch"], shuffle=True, augment=Augment(shift=2))
    return {"batch": _endless(loader)}


def overlaid(point: Point) -> Tasks:
    """Generate a batch of MultiMNIST as bytes, with both sources."""
    data = load_data("multimnist", source="digits")
    starts = itertools.count(step=point["batch"])
    return {"batch": lambda: data.batch(torch.arange(point["batch"]) + next(starts) % (len(data) - point["batch"]))}


def overlaid_loader(point: Point) -> Tasks:
    """Generate a batch of MultiMNIST in random order, as floats."""
    return {"batch": _endless(BatchLoader(load_data("multimnist", source="digits"), point["batch"], shuffle=True))}


def step(point: Point) -> Tasks:
    """Prepare a training step of `capsnet_small`."""
    torch.manual_seed(0)
    model = create_model("capsnet_small")
    tasks = training_step(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), point)
    return {"batch": tasks["step"]}


def check_batches() -> None:
    """Check that a generated sample is the same in every batch."""
    data = load_data("multimnist", source="digits")
    numbers = torch.arange(0, len(data), len(data) // 7)
    together = data.batch(numbers)
    for place, number in enumerate(numbers.tolist()):
        assert torch.equal(data.batch([number]).images[0], together.images[place]), f"sample {number} differs"


def _endless(loader: BatchLoader) -> Callable[[], object]:
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    return lambda: next(batches)


CASES.add(
    "loading",
    Case(
        title="Loading a batch, beside the training step of capsnet_small that uses it",
        candidates=(
            Candidate("digits in memory, shifted", shifted),
            Candidate("multimnist, generated", overlaid),
            Candidate("multimnist, generated, as floats", overlaid_loader),
            Candidate("training step of capsnet_small", step),
        ),
        points=(PAPER,),
        quick=(PAPER,),
        check=check_batches,
        memory=False,
    ),
)
