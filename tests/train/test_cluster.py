"""Launchers: what torchrun and SLURM tell a process, and jobs that go back into the queue."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from raising import raises_about
from torchcaps.errors import ConfigError, MissingPackageError
from torchcaps.train import Run, fit, is_first_process
from torchcaps.train._cluster import Group, is_restarted, launch_id, launched

from .conftest import MakeRecipe
from .test_runner import Killed, kill_at

# Seconds for something to happen on a busy machine.
LIMIT = 900

ELASTIC = {
    "TORCHELASTIC_RUN_ID": "job7", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234",
}  # fmt: skip
SLURM = {
    "SLURM_NTASKS": "6", "SLURM_NNODES": "3", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
    "SLURM_JOB_ID": "42", "SLURM_NTASKS_PER_NODE": "2",
}  # fmt: skip


def set_all(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_process_without_a_launcher() -> None:
    assert launched() is None
    assert is_first_process()
    assert not is_restarted()
    assert launch_id() is None


def test_process_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, ELASTIC)
    group = launched()
    assert group is not None
    assert (group.rank, group.world, group.nodes, group.devices) == (3, 4, 2, 2)
    assert not is_first_process()
    assert launch_id() == "job7"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert is_restarted()


def test_task_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SLURM)
    group = launched()
    assert group is not None
    assert (group.rank, group.world, group.nodes, group.devices) == (0, 6, 3, 2)
    assert launch_id() == "42"
    monkeypatch.setenv("SLURM_NNODES", "4")
    with raises_about(ConfigError, "trainer.devices:", 6):
        launched()


@pytest.mark.parametrize(("tasks", "each"), [("2(x3)", 2), ("2,2,2", 2), ("3,2,1", None), ("2(x2),1", None)])
def test_tasks_of_srun_with_a_number_alone(monkeypatch: pytest.MonkeyPatch, tasks: str, each: int | None) -> None:
    # Set first, so that what the code sets is removed afterwards.
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "")
    set_all(monkeypatch, {**SLURM, "SLURM_STEP_TASKS_PER_NODE": tasks})
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    if each is None:
        with raises_about(ConfigError, "--ntasks-per-node:", tasks):
            launched()
    else:
        group = launched()
        assert group is not None
        assert (group.world, group.nodes, group.devices) == (6, 3, each)


def test_mpirun_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with raises_about(MissingPackageError, "mpi4py:", "pip install mpi4py"):
        launched()
    # One process is no group, and one of srun is not one of mpirun.
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    assert launched() is None
    set_all(monkeypatch, {**SLURM, "PMI_SIZE": "6"})
    group = launched()
    assert group is not None
    assert type(group.environment).__name__ == "SLURMEnvironment"


def test_job_script_of_one_task_is_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, {**SLURM, "SLURM_NTASKS": "1"})
    assert launched() is None


def test_several_hosts_need_a_launcher(recipe: MakeRecipe, tmp_path: Path) -> None:
    with raises_about(ConfigError, "trainer.nodes:", 2):
        fit(recipe("trainer.nodes=2"), tmp_path / "run")


def threads_of_gloo() -> int:
    count = 0
    for name in Path("/proc/self/task").glob("*/comm"):
        # Another thread may end meanwhile.
        with suppress(OSError):
            count += "gloo" in name.read_text()
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads by /proc")
def test_connections_end_although_a_mesh_is_kept(tmp_path: Path) -> None:
    before = threads_of_gloo()
    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    # PyTorch's caches of divided tensors keep it in the same way.
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("data",))
    assert mesh["data"].get_group() is not None
    # A thread names itself after it has started.
    end = time.monotonic() + LIMIT
    while threads_of_gloo() == before:
        assert time.monotonic() < end
        time.sleep(0.01)
    Group().leave()
    assert not distributed.is_initialized()
    assert threads_of_gloo() == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGUSR1")
def test_slurm_job_is_queued_again_and_resumes(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real command line with the variables of a job, and a program in place of SLURM's scontrol."""
    small = recipe("model.name=cnn_small", "model.options={}", "trainer.epochs=400")
    (tmp_path / "recipe.toml").write_text(small.to_toml())
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    program.chmod(0o755)
    environment = {
        **os.environ, "SLURM_JOB_ID": "42", "SLURM_NTASKS": "1", "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    words = ["train", tmp_path / "recipe.toml", "--out", tmp_path / "run", "--quiet", "--no-report"]
    command = [sys.executable, "-m", "torchcaps", *map(str, words)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + LIMIT
        while not list((tmp_path / "run" / "checkpoints").glob("*.ckpt")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGUSR1, stderr
    assert (tmp_path / "calls").read_text() == "requeue 42\n"
    run = Run.open(tmp_path / "run")
    assert (run.status, run.record["signal"]) == ("stopped", "SIGUSR1")
    # SLURM starts the same command again.
    set_all(monkeypatch, {"SLURM_JOB_ID": "42", "SLURM_NTASKS": "1", "SLURM_RESTART_COUNT": "1"})
    kill_at(monkeypatch, "on_train_start", int(run.metrics()["step"][-1]))
    with pytest.raises(Killed):
        fit(small, tmp_path / "run")
    assert len(Run.open(tmp_path / "run").record["resumed"]) == 1
