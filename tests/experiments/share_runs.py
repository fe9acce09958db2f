"""A worker of test_shared_runs.py: `python share_runs.py FOLDER IMAGES LOG KIND`; it trains its share of 40 runs.

KIND is `grid` (planned runs) or `sweep` (trials).
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from torchcaps.experiments import PlannedRun, parse_space, run_grid, sweep
from torchcaps.train import Run, load_recipe


def log(text: str) -> None:
    """Append a line to the log of all workers, in one piece."""
    descriptor = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{text} {os.getpid()}\n".encode())
    os.close(descriptor)


def update_record(self: Run, **values: object) -> None:
    original(self, **values)
    if values.get("status") in ("running", "finished"):
        log(f"{values['status']} {self.path.name}")


original = Run.update_record

if __name__ == "__main__":
    Run.update_record = update_record
    small = ["data.batch_size=12", "trainer.epochs=2", "trainer.checkpoint_every=1", "optim.warmup=0"]
    words = ["model.name=cnn_small", "model.options={}", f"data.options.path={sys.argv[2]}", "trainer.accelerator=cpu"]
    folder, recipe = Path(sys.argv[1]), load_recipe("folder", [*words, *small])
    log("start all")
    if sys.argv[4] == "sweep":
        space, _ = parse_space(["optim.lr=log(1e-4,1e-2)", "data.batch_size=6,12"])
        for trial in sweep(recipe, folder, space, trials=40, prune=False).trials:
            log(f"outcome-{trial.status} {trial.folder}")
    else:
        plan = [PlannedRun("a", replace(recipe, seed=seed), f"trial-{seed:03d}") for seed in range(40)]
        for outcome in run_grid(plan, folder, lambda run: run.record["seconds"]):
            log(f"outcome-{outcome.status} {outcome.planned.folder}")
