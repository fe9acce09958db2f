from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from torchcaps.experiments import Sweep, read_json
from torchcaps.experiments.sweep import RESULT
from torchcaps.train import Run

WORKERS, RUNS = 4, 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grid", "sweep"])
def test_exactly_once(images, tmp_path, kind):
    """Four processes share 40 trainings; two of them are killed in the middle of one."""
    folder, log = tmp_path / "runs", tmp_path / "log"
    log.touch()
    script = Path(__file__).with_name("share_runs.py")
    command = [sys.executable, str(script), str(folder), str(images), str(log), kind]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    workers = [subprocess.Popen(command, env=environment) for _ in range(WORKERS)]

    def lines(kind: str) -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines() if line.startswith(f"{kind} ")]

    for worker, done in zip(workers[:2], (5, 15), strict=True):
        # It has begun a run that is not finished: it is killed in the middle of it.
        while True:
            begun, finished = (
                {row[1] for row in lines(kind) if row[2] == str(worker.pid)} for kind in ("running", "finished")
            )
            if len(lines("finished")) >= done and begun - finished:
                break
            assert worker.poll() is None
            time.sleep(0.02)
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
    assert [worker.wait(timeout=1200) for worker in workers[2:]] == [0, 0]
    names = [f"trial-{number:03d}" for number in range(RUNS)]
    finished = Counter(row[1] for row in lines("finished"))
    statuses = {name: Run.open(folder / name).status for name in names}
    assert statuses == dict.fromkeys(names, "finished")
    assert finished == Counter(names)
    for name in names:
        assert len(Run.open(folder / name).metrics()["epoch"]) == 2
    begun = Counter(row[1] for row in lines("running"))
    again = [name for name in names if begun[name] > 1]
    # Both that survived report every run.
    assert all(
        Counter(row[1] for row in lines("outcome-finished") if row[2] == str(worker.pid)) == Counter(names)
        for worker in workers[2:]
    )
    print(json.dumps({"runs": len(names), "finished": sum(finished.values()), "taken over": again}))
    assert len(again) <= 2
    if kind == "sweep":
        # The journal has one result of each trial, and no two trials have the same values.
        result = read_json(Sweep, folder / RESULT)
        assert [trial.status for trial in result.trials] == ["finished"] * RUNS
        assert len({trial.values["optim.lr"] for trial in result.trials}) == RUNS
