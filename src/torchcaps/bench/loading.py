"""Whether loading holds training up: a batch made ready, beside the training step of `capsnet_small` that uses it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from torchcaps.bench._case import CASES, Case, Contender, Point, Tasks
from torchcaps.bench.capsnet import training_step
from torchcaps.data import Augment, BatchLoader, load_data
from torchcaps.models import create_model

PAPER: Point = {"batch": 128}


def shifted(point: Point) -> Tasks:
    """A batch of the embedded digits from memory: chosen, made floats, shifted by up to 2 pixels."""
    loader = BatchLoader(load_data("digits"), point["batch"], shuffle=True, augment=Augment(shift=2))
    return {"batch": _endless(loader)}


def overlaid(point: Point) -> Tasks:
    """A batch of MultiMNIST: two digits chosen, placed and added, as bytes, with both sources."""
    data = load_data("multimnist", source="digits")
    starts = itertools.count(step=point["batch"])
    return {"batch": lambda: data.batch(torch.arange(point["batch"]) + next(starts) % (len(data) - point["batch"]))}


def overlaid_loader(point: Point) -> Tasks:
    """The same as training gets it: in random order, as floats."""
    return {"batch": _endless(BatchLoader(load_data("multimnist", source="digits"), point["batch"], shuffle=True))}


def step(point: Point) -> Tasks:
    """A training step of `capsnet_small` on as many images of 28x28."""
    torch.manual_seed(0)
    model = create_model("capsnet_small")
    tasks = training_step(model, torch.optim.Adam(model.parameters(), lr=1e-3, fused=True), point)
    return {"batch": tasks["step"]}


def check_batches() -> None:
    """A generated sample is the same in any batch: without that, speed means nothing."""
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
        title="A batch made ready, beside the training step of capsnet_small that uses it",
        contenders=(
            Contender("digits in memory, shifted", shifted),
            Contender("multimnist, drawn", overlaid),
            Contender("multimnist, drawn, as floats", overlaid_loader),
            Contender("a training step of capsnet_small", step),
        ),
        points=(PAPER,),
        quick=(PAPER,),
        check=check_batches,
        memory=False,
    ),
)
