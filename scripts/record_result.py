"""Record finished runs in results/: `python scripts/record_result.py RUN...`, one file per recipe.

A file contains the runs of one recipe, ordered by seed. A run replaces an earlier one with the same seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from torchcaps._files import write_text
from torchcaps.errors import CheckpointError
from torchcaps.train import Run

RESULTS = Path(__file__).resolve().parent.parent / "results"
KEPT = ("seed", "parameters", "seconds", "results", "machine", "versions", "commit", "finished")


def record(run: Run, results: Path = RESULTS) -> Path:
    """Record one run; return the written file."""
    if run.status != "finished":
        raise CheckpointError(f"run: expected a finished run, got '{run.path}' (status '{run.status}')")
    recipe = run.recipe
    file = results / f"{recipe.name}.json"
    entry = {name: run.record[name] for name in (*KEPT, "extended") if name in run.record}
    entry["epochs"] = recipe.trainer.epochs
    table: dict[str, Any] = {"recipe": recipe.name, "model": recipe.model.name, "data": recipe.data.name, "runs": []}
    if file.exists():
        table["runs"] = [old for old in json.loads(file.read_text())["runs"] if old["seed"] != recipe.seed]
    table["runs"] = sorted([*table["runs"], entry], key=lambda each: each["seed"])
    write_text(file, json.dumps(table, indent=2) + "\n")
    return file


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        print(record(Run.open(folder)))
