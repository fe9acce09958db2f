"""Several processes: they end with the process that started them, stop together, and report how one of them failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from raising import raises_about
from torchcaps.errors import DataError, TorchcapsError
from torchcaps.train import Run, fit, resume
from torchcaps.train._workers import run_workers
from worker_targets import fail, kill_itself

from .conftest import MakeRecipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
# Seconds for something to happen on a busy machine.
LIMIT = 900


def wait_for(condition, process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def workers_of(pid: int) -> list[int]:
    """The processes that train: not the one that tracks shared resources."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_error_of_ours_in_one_process() -> None:
    with raises_about(TorchcapsError, "file:", "3"):
        run_workers(fail, 2, (DataError,), "")


def test_other_error_in_one_process_has_its_traceback() -> None:
    with pytest.raises(RuntimeError) as caught:
        run_workers(fail, 2, (KeyError,), "")
    assert str(caught.value) == "KeyError: 'file: expected more, got 3'"
    assert "in fail" in caught.value.__notes__[0]


@pytest.mark.parametrize("first", [1, 0])
def test_killed_process_is_named_and_not_the_loss_of_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr("torchcaps.train._workers._GRACE", float(LIMIT))
    os.mkfifo(tmp_path / "pipe")
    with raises_about(TorchcapsError, "trainer.devices:", "SIGKILL", "the way on"):
        run_workers(kill_itself, 2, (str(tmp_path / "pipe"), first), "the way on")


WATCH = """
import multiprocessing, sys, time
from torchcaps.train._workers import _watch_parent
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_watch_parent)
    process.start()
    print(process.pid, flush=True)
    time.sleep(600)
"""


def test_process_that_watches_ends_with_its_parent(tmp_path: Path) -> None:
    # The way of systems whose kernel does not do it.
    (tmp_path / "script.py").write_text(WATCH)
    parent = subprocess.Popen([sys.executable, tmp_path / "script.py"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    wait_for(lambda: b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_alive(child))


@contextmanager
def training(recipe: MakeRecipe, tmp_path: Path, epochs: int) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The command line with two processes that have saved a checkpoint."""
    pair = recipe(
        "trainer.devices=2", f"trainer.epochs={epochs}", "model.name=cnn_small", "model.options={dropout = 0.5}"
    )
    (tmp_path / "recipe.toml").write_text(pair.to_toml())
    folder = tmp_path / "run"
    words = ["train", tmp_path / "recipe.toml", "--out", folder, "--quiet", "--no-report"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "torchcaps", *map(str, words)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: list((folder / "checkpoints").glob("*.ckpt")), process)
        yield process, folder
    finally:
        process.kill()
        # Its output can be read once, which the caller may have done.
        with process:
            pass


@pytest.mark.slow
def test_sigterm_saves_and_stops_all_processes(recipe: MakeRecipe, tmp_path: Path) -> None:
    with training(recipe, tmp_path, 500) as (process, folder):
        workers = workers_of(process.pid)
        process.terminate()
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM, stderr
    assert f"--resume {folder}" in stderr
    assert not [pid for pid in workers if is_alive(pid)]
    run = Run.open(folder)
    assert (run.status, run.record["signal"]) == ("stopped", "SIGTERM")


@pytest.mark.slow
def test_killed_parent_takes_its_processes_along(recipe: MakeRecipe, tmp_path: Path) -> None:
    whole = fit(
        recipe("trainer.devices=2", "trainer.epochs=40", "model.name=cnn_small", "model.options={dropout = 0.5}"),
        tmp_path / "whole",
    )
    with training(recipe, tmp_path, 40) as (process, folder):
        workers = workers_of(process.pid)
        assert len(workers) == 2
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(is_alive, workers)))
        before = sorted((folder / "checkpoints").iterdir())
        # They did not train to the end first.
        assert not before[-1].name.startswith("epoch-0040")
        run = Run.open(folder)
        assert run.status == "running"
        # The lock is free, and no process writes.
        with run.locked():
            time.sleep(1)
        assert sorted((folder / "checkpoints").iterdir()) == before
    assert resume(folder).weights.read_bytes() == whole.weights.read_bytes()


@pytest.mark.slow
def test_killed_process_ends_the_run_with_the_command_to_resume(recipe: MakeRecipe, tmp_path: Path) -> None:
    with training(recipe, tmp_path, 500) as (process, folder):
        workers = workers_of(process.pid)
        os.kill(workers[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 2, stderr
    assert f"torchcaps train --resume {folder}" in stderr
    assert "unexpected" not in stderr
    assert not any(map(is_alive, workers))
    assert Run.open(folder).status == "failed"
