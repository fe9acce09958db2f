"""Train in 32 and in 16 bits: `python scripts/measure_precision.py FOLDER [SEEDS]`, with a folder for the runs.

The recipe `digits` is trained in both precisions with several seeds (default: 3), in turns. A run of the folder that is
finished is not trained again, one that was stopped continues. The results are stored in results/precision.json; the
time of the processor is that of one thread, and missing for a run that was stopped.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from torchcaps.train import Run, fit, load_recipe, resume
from torchcaps.train.environment import provenance

FILE = Path(__file__).resolve().parent.parent / "results" / "precision.json"
PRECISIONS = ("32-true", "bf16-mixed")
SECONDS = "processor_seconds.json"
KEPT = ("seconds", "results", "machine", "versions", "commit", "finished")


def train(folder: Path, precision: str, seed: int) -> Run:
    """Return the finished run of a precision and a seed."""
    path = folder / f"{precision}-{seed}"
    if not path.exists():
        before = time.process_time()
        run = fit(load_recipe("digits", [f"trainer.precision={precision}", f"seed={seed}"]), path)
        (path / SECONDS).write_text(json.dumps(time.process_time() - before))
        return run
    run = Run.open(path)
    return run if run.status == "finished" else resume(path)


def has_instructions() -> bool | None:
    """Return whether the processor multiplies bfloat16, or None where the system does not say."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", " bf16"))


def measure(folder: Path, seeds: int, file: Path = FILE) -> None:
    """Train what is missing, and store all runs."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for precision in PRECISIONS:
            run = train(folder, precision, seed)
            record, seconds = run.record, run.path / SECONDS
            if record["status"] != "finished":
                raise SystemExit(f"{precision}, seed {seed}: {record['status']}; the same command continues")
            time_taken = {"processor_seconds": json.loads(seconds.read_text()) if seconds.exists() else None}
            kept = {name: record[name] for name in KEPT}
            rows.append({"precision": precision, "seed": seed, **time_taken, **kept})
            about = {"recipe": "digits", "bfloat16_instructions": has_instructions(), **provenance()}
            file.write_text(json.dumps({**about, "runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
