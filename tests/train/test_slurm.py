"""Jobs of a real SLURM on this host, and processes of a real mpirun."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchcaps.train import Recipe, Run, fit

from .conftest import MakeRecipe
from .slurm_cluster import Cluster, cluster, missing_reason
from .test_distributed import LIMIT, PLAIN, assert_close, has_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if (reason := missing_reason()) is not None:
        pytest.skip(reason)
    with cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


def train(recipe: Recipe, folder: Path) -> list[str]:
    file = folder.parent / f"{folder.name}.toml"
    file.write_text(recipe.to_toml())
    words = ["train", str(file), "--out", str(folder), "--quiet", "--no-report"]
    return [sys.executable, "-m", "torchcaps", *words]


def wait_for(condition: Callable[[], Any], slurm: Cluster, log: Path) -> None:
    # SLURM itself waits for minutes here and there.
    end = time.monotonic() + 3 * LIMIT
    while not condition():
        assert time.monotonic() < end, (log.read_text() if log.exists() else "no output", slurm.logs())
        time.sleep(0.2)


@pytest.mark.parametrize("options", [["-n", "2"], ["--ntasks-per-node=2"]])
def test_srun_follows_one_process(slurm: Cluster, recipe: MakeRecipe, tmp_path: Path, options: list[str]) -> None:
    small = recipe(*PLAIN)
    one = fit(small, tmp_path / "one")
    out = slurm.run("srun", *options, *train(small, tmp_path / "two"))
    # Only the first task reports.
    assert out.count("held-out images") == 1
    two = Run.open(tmp_path / "two")
    assert two.status == "finished"
    assert_close(two, one)


def test_job_of_two_tasks_is_requeued_by_sigusr1_and_stops_by_scancel(
    slurm: Cluster, recipe: MakeRecipe, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    command = " ".join(train(recipe(*PLAIN, "trainer.epochs=4000"), folder))
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\nsrun {command}\n")
    options = ["--ntasks=2", "--requeue", "--open-mode=append", "--signal=USR1@60", "--time=30", f"--output={log}"]
    job = slurm.run("sbatch", "--parsable", *options, str(script))
    wait_for(has_checkpoint(folder), slurm, log)
    # What SLURM sends before the end of the time.
    slurm.run("scancel", "--signal=USR1", job)
    # A job that is queued again begins after two minutes, or at the time that is set below.
    wait_for(lambda: slurm.state(job) == "PENDING", slurm, log)
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: Run.open(folder).record.get("resumed"), slurm, log)
    done = len(Run.open(folder).metrics().get("epoch", []))
    wait_for(lambda: len(Run.open(folder).metrics().get("epoch", [])) > done, slurm, log)
    assert "Restarts=1" in slurm.run("scontrol", "show", "job", job)
    # SIGTERM, then SIGKILL after KillWait.
    slurm.run("scancel", job)
    wait_for(lambda: Run.open(folder).status == "stopped", slurm, log)
    run = Run.open(folder)
    assert run.record["signal"] == "SIGTERM"
    assert len(run.record["resumed"]) == 1
    assert f"--resume {folder}" in log.read_text()
    wait_for(lambda: slurm.state(job) == "CANCELLED", slurm, log)


def test_array_of_submit_shares_the_runs(slurm: Cluster, recipe: MakeRecipe, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    folder, file = tmp_path / "runs", tmp_path / "recipe.toml"
    file.write_text(recipe(*PLAIN, "trainer.epochs=1").to_toml())
    words = [sys.executable, "-m", "torchcaps", "train", str(file), "--seeds", "3", "--out", str(folder), "--json"]
    submitted = json.loads(slurm.run(*words, "--submit", "slurm", "--workers", "2", "--slurm", "time=20"))
    assert len(submitted["jobs"]) == 2
    logs = folder / "jobs"
    # The same command without --submit joins them, and prints the table.
    result = json.loads(slurm.run(*words))
    assert [run["status"] for run in result["runs"]] == ["finished"] * 3
    claims = sorted(path.name for path in (folder / ".claims").iterdir())
    assert len(claims) == 3
    assert all(name.endswith(".0") for name in claims)
    for job in submitted["jobs"]:
        wait_for(lambda job=job: slurm.state(job) == "COMPLETED", slurm, logs)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (apt-get install openmpi-bin)")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_mpirun_follows_one_process(recipe: MakeRecipe, tmp_path: Path) -> None:
    small = recipe(*PLAIN)
    one = fit(small, tmp_path / "one")
    options = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", *options, "--oversubscribe", "-n", "2", *train(small, tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out images") == 1
    assert_close(Run.open(tmp_path / "two"), one)
