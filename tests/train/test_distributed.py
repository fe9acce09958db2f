"""One run in several processes, as torchrun starts them; two hosts are two network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from torchcaps.train import Recipe, Run, fit, resume

from .conftest import MakeRecipe
from .test_runner import Killed, kill_at

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="gloo, and processes found by /proc")
# Seconds for something to happen on a busy machine.
LIMIT = 900
PLAIN = ["model.name=cnn_small", "model.options={dropout = 0.0}"]


def torchrun(recipe: Recipe | None, folder: Path, *options: str, prefix: tuple[str, ...] = ()) -> list[str]:
    """The command: a recipe in a new folder, or the run in the folder resumed."""
    words = ["--resume", str(folder)]
    if recipe is not None:
        file = folder.parent / "recipe.toml"
        file.write_text(recipe.to_toml())
        words = [str(file), "--out", str(folder)]
    launcher = [sys.executable, "-m", "torch.distributed.run", *(options or ("--standalone", "--nproc-per-node=2"))]
    return [*prefix, *launcher, "-m", "torchcaps", "train", *words, "--quiet", "--no-report"]


def start(command: list[str]) -> subprocess.Popen[str]:
    # Restarts of torchrun hang now and then if the processes share its store. A process that aborts says where.
    variables = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PYTHONFAULTHANDLER": "1"}
    environment = {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextmanager
def running(*commands: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Commands that run; whatever happens, none of their processes is left."""
    processes = [start(command) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            # A killed launcher would leave the processes that it started.
            left = [] if process.poll() is not None else [process.pid, *trainers(process.pid).values()]
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()


def wait_for(condition: Callable[[], Any], *processes: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        for process in processes:
            assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def has_checkpoint(folder: Path) -> Callable[[], bool]:
    return lambda: any((folder / "checkpoints").glob("*.ckpt"))


def trainers(launcher: int) -> dict[int, int]:
    """The processes that a launcher started, by rank."""
    found = {}
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        with suppress(OSError):
            variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            ranks = [int(each.partition(b"=")[2]) for each in variables if each.startswith(b"RANK=")]
            found |= dict.fromkeys(ranks, int(child))
    return found


def assert_close(run: Run, other: Run) -> None:
    """Sums are added in another order: single precision, grown over some steps."""
    for name in ("train_loss", "val_loss", "lr"):
        assert run.metrics()[name] == pytest.approx(other.metrics()[name], rel=1e-3)
    assert run.metrics()["step"] == other.metrics()["step"]


def test_torchrun_resumes_a_run_of_one_process(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = recipe(*PLAIN)
    whole = fit(small, tmp_path / "whole")
    with monkeypatch.context() as patch:
        kill_at(patch, "on_train_batch_end", 5)
        with pytest.raises(Killed):
            fit(small, tmp_path / "run")
    with running(torchrun(None, tmp_path / "run")) as (process,):
        stdout, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    # Only the first process reports.
    assert stdout.count("held-out images") == 1
    run = Run.open(tmp_path / "run")
    assert run.status == "finished"
    assert run.record["results"]["test_images"] == 6
    assert_close(run, whole)


def assert_same_diagnostics(run: Run, other: Run) -> None:
    """The same statistics of the same layers; the values are those of weights that differ by rounding."""
    table, expected = run.diagnostics(), other.diagnostics()
    for name in ("epoch", "layer", "iteration", "measure"):
        assert table[name] == expected[name]
    # A prediction near a tie may change: one of 16 images.
    assert table["value"] == pytest.approx(expected["value"], rel=1e-2, abs=0.07)
    exact = ("entropy", "gradient_norm")
    for value, wanted, measure in zip(table["value"], expected["value"], table["measure"], strict=True):
        assert measure not in exact or value == pytest.approx(wanted, rel=2e-3)
    for name in ("entropy", "dead", "gradient_norm"):
        assert run.metrics()[name] == pytest.approx(other.metrics()[name], rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "count"), [("ddp", 4), ("fsdp2", 2), ("fsdp2", 4)])
def test_processes_follow_one(recipe: MakeRecipe, tmp_path: Path, strategy: str, count: int) -> None:
    words = ["trainer.epochs=4", "optim.ema_decay=0.5"]
    one = fit(recipe(*words), tmp_path / "one")
    several = recipe(*words, f"trainer.strategy={strategy}")
    with running(torchrun(several, tmp_path / "two", "--standalone", f"--nproc-per-node={count}")) as (process,):
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    two = Run.open(tmp_path / "two")
    assert_close(two, one)
    assert_same_diagnostics(two, one)
    first, second = load_file(one.weights), load_file(two.weights)
    for name in first:
        torch.testing.assert_close(second[name], first[name], rtol=0, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("before", ["ddp", "fsdp2"])
@pytest.mark.parametrize("after", ["one", "fsdp2"])
def test_checkpoints_move_between_strategies(recipe: MakeRecipe, tmp_path: Path, before: str, after: str) -> None:
    # Without a schedule, an extended run is the longer one.
    constant = ["optim.schedule=constant", "optim.warmup=0"]
    whole = fit(recipe(*constant), tmp_path / "whole")
    with running(torchrun(recipe(*constant, "trainer.epochs=1", f"trainer.strategy={before}"), tmp_path / "run")) as (
        process,
    ):
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    with pytest.warns(UserWarning, match="world_size") if after == "one" else nullcontext():
        run = resume(tmp_path / "run", epochs=3) if after == "one" else extended(tmp_path / "run", after)
    assert_close(run, whole)


def extended(folder: Path, strategy: str) -> Run:
    from dataclasses import replace

    run = Run.open(folder)
    trainer = replace(run.recipe.trainer, strategy=strategy, devices=2)
    run.change(replace(run.recipe, trainer=trainer))
    return resume(folder, epochs=3)


@pytest.mark.slow
def test_killed_process_is_restarted_and_the_run_resumes(recipe: MakeRecipe, tmp_path: Path) -> None:
    long = recipe(*PLAIN, "trainer.epochs=40", "trainer.timeout=300")
    with running(torchrun(long, tmp_path / "whole")) as (process,):
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    options = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.2")
    folder = tmp_path / "run"
    with running(torchrun(long, folder, *options)) as (process,):
        wait_for(has_checkpoint(folder), process)
        os.kill(trainers(process.pid)[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, stderr
    run = Run.open(folder)
    assert run.status == "finished"
    assert len(run.record["resumed"]) == 1
    assert run.weights.read_bytes() == Run.open(tmp_path / "whole").weights.read_bytes()


@pytest.mark.slow
def test_killed_process_without_restarts_ends_with_the_command_to_resume(recipe: MakeRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(torchrun(recipe(*PLAIN, "trainer.epochs=400"), folder)) as (process,):
        wait_for(has_checkpoint(folder), process)
        os.kill(trainers(process.pid)[1], signal.SIGKILL)
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert Run.open(folder).status in ("failed", "stopped"), stderr
    assert f"--resume {folder}" in stderr
    assert "unexpected" not in stderr


@pytest.mark.slow
def test_sigterm_to_torchrun_saves_and_stops(recipe: MakeRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(torchrun(recipe(*PLAIN, "trainer.epochs=400"), folder)) as (process,):
        wait_for(has_checkpoint(folder), process)
        process.terminate()
        _, stderr = process.communicate(timeout=LIMIT)
    assert f"--resume {folder}" in stderr
    run = Run.open(folder)
    assert (run.status, run.record["signal"]) == ("stopped", "SIGTERM")


@pytest.mark.slow
def test_mistake_is_reported_once_and_ends_all(recipe: MakeRecipe, tmp_path: Path) -> None:
    wrong = recipe(*PLAIN, "loss.options.present_=1")
    with running(torchrun(wrong, tmp_path / "run")) as (process,):
        _, stderr = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert stderr.count("'present_'") == 1, stderr
    assert not (tmp_path / "run").exists()


def netns(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces that are joined by a cable, 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 for network namespaces")
    names = (f"caps{os.getpid()}a", f"caps{os.getpid()}b")
    try:
        try:
            for name in names:
                netns("netns", "add", name)
            netns("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here ({error.stderr.strip()})")
        for number, name in enumerate(names, start=1):
            netns("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "cable")
            netns("-n", name, "link", "set", "cable", "up")
            netns("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            with suppress(subprocess.CalledProcessError):
                netns("netns", "delete", name)


def on_hosts(hosts: tuple[str, str], recipe: Recipe | None, folder: Path, *options: str) -> list[list[str]]:
    rendezvous = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=10.77.0.1", "--master-port=29511", *options]
    commands = []
    for rank, host in enumerate(hosts):
        prefix = ("ip", "netns", "exec", host, "env", "GLOO_SOCKET_IFNAME=cable")
        # Each host has a folder of its own: only the first one writes.
        own = folder if rank == 0 else folder.parent / "other" / "run"
        own.parent.mkdir(exist_ok=True)
        commands.append(torchrun(recipe, own, *rendezvous, f"--node-rank={rank}", prefix=prefix))
    return commands


@pytest.mark.slow
def test_two_hosts_and_one_that_is_cut_off(hosts: tuple[str, str], recipe: MakeRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = recipe(*PLAIN, "trainer.epochs=400", "trainer.timeout=90")
    with running(*on_hosts(hosts, long, folder)) as processes:
        wait_for(has_checkpoint(folder), *processes)
        # The cable is cut in the middle of an epoch.
        netns("-n", hosts[1], "link", "set", "cable", "down")
        errors = [process.communicate(timeout=LIMIT)[1] for process in processes]
    assert all(process.returncode for process in processes), errors
    assert f"--resume {folder}" in errors[0], errors[0]
    assert Run.open(folder).status in ("failed", "stopped")
    assert not (tmp_path / "other" / "run").exists()
    # The cable is back: both hosts resume the run, at least one epoch further.
    netns("-n", hosts[1], "link", "set", "cable", "up")
    done = len(Run.open(folder).metrics().get("epoch", []))
    with running(*on_hosts(hosts, None, folder)) as processes:
        wait_for(lambda: len(Run.open(folder).metrics().get("epoch", [])) > done, *processes)
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=LIMIT)
    assert Run.open(folder).status == "stopped"
