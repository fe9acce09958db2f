"""How much memory a training step of a run takes, measured in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from torchcaps.bench._case import Contender, Point, Tasks
from torchcaps.bench.measure import in_own_process, peak_memory
from torchcaps.data import BatchLoader, load_data
from torchcaps.train import Recipe, Run


def step_memory(run: Path) -> float | str:
    """Peak memory of a training step in MB beyond what inputs and parameters take, or what went wrong."""
    found = in_own_process("torchcaps.bench.step", str(run))
    return found["step"] if isinstance(found, dict) else found


def training_step(recipe: Recipe) -> Contender:
    """One step as the recipe says: forward, losses, backward, update, with the memory that the optimiser keeps."""
    from torchcaps.train.module import TrainModule, make_model

    data = load_data(recipe.data.name, "train", **recipe.data.options)
    data = data.subset(range(min(len(data), recipe.data.batch_size)))

    def prepare(point: Point) -> Tasks:
        torch.manual_seed(recipe.seed)
        module = TrainModule(make_model(recipe, data), recipe, total_steps=1)
        optimiser = module.configure_optimizers()["optimizer"]
        # Two at least: batch normalisation has nothing to normalise over in one.
        size = max(2, point["batch"])
        batch = next(iter(BatchLoader(data, size, shuffle=True, augment=recipe.data.augment)))

        def step() -> None:
            optimiser.zero_grad()
            module.training_step(batch, 0).backward()
            optimiser.step()

        return {"step": step}

    return Contender(recipe.model.name, prepare)


if __name__ == "__main__":
    wanted = Run.open(sys.argv[1]).recipe
    print(json.dumps(peak_memory(training_step(wanted), {"batch": wanted.data.batch_size})))
