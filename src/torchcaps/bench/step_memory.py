"""Memory of a training step of a run, measured in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from torchcaps.bench._case import Candidate, Point, Tasks
from torchcaps.bench.measure import in_own_process, peak_memory
from torchcaps.data import BatchLoader, load_data
from torchcaps.train import Recipe, Run


def step_memory(run: Path) -> float | str:
    """Return the peak memory of a training step in MB, without inputs and parameters, or the reason of a failure."""
    peaks = in_own_process("torchcaps.bench.step_memory", str(run))
    return peaks["step"] if isinstance(peaks, dict) else peaks


def training_step(recipe: Recipe) -> Candidate:
    """Return one step of a recipe: forward, losses, backward, update, with the state of the optimiser."""
    from torchcaps.train.module import CapsModule, make_model

    data = load_data(recipe.data.name, "train", **recipe.data.options)
    data = data.subset(range(min(len(data), recipe.data.batch_size)))

    def prepare(point: Point) -> Tasks:
        torch.manual_seed(recipe.seed)
        module = CapsModule(make_model(recipe, data), recipe, total_steps=1)
        optimiser = module.configure_optimizers()["optimizer"]
        # Batch normalisation needs at least two images.
        size = max(2, point["batch"])
        batch = next(iter(BatchLoader(data, size, shuffle=True, augment=recipe.data.augment)))

        def step() -> None:
            optimiser.zero_grad()
            module.training_step(batch, 0).backward()
            optimiser.step()

        return {"step": step}

    return Candidate(recipe.model.name, prepare)


if __name__ == "__main__":
    recipe = Run.open(sys.argv[1]).recipe
    print(json.dumps(peak_memory(training_step(recipe), {"batch": recipe.data.batch_size})))
