"""Start, break and compare short trainings, each in a forked process of its own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

# Seconds after which a process counts as hanging. A training takes one to three; a busy machine takes its time.
HANG = 600.0
_SMALL = (
    "trainer.accelerator=cpu",
    "data.batch_size=16",
    "trainer.epochs=3",
    "trainer.checkpoint_every=2",
    "optim.warmup=2",
)


class BrokenError(Exception):
    """A trial ended in a way that loses data, hangs or shows an unexpected error."""


class MissedError(Exception):
    """The training had ended before the fault, or nothing was there to damage: the trial does not count."""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        code: The exit code; negative for the signal that ended the process.
        output: What the process wrote to stdout and stderr.
    """

    code: int
    output: str

    @property
    def refused(self) -> bool:
        """Whether the command refused its input with one clear message."""
        return self.code == 2 and "Traceback" not in self.output and "unexpected" not in self.output


class Child:
    """One `torchcaps` command in a forked process, in a session of its own."""

    def __init__(self, words: Sequence[str], log: Path, prepare: Callable[[], None] | None = None) -> None:
        self.log = log
        self.code: int | None = None
        # The parent never computes, so that there are no threads to lose in the fork.
        self.pid = os.fork()
        if self.pid == 0:
            _run_command(words, log, prepare)

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def kill(self) -> None:
        """End the process and everything it started."""
        # The group outlives its leader while it has members.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = HANG) -> Ended:
        """Wait for the end.

        Raises:
            BrokenError: If the process still runs after `seconds`.
        """
        limit = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > limit:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                raise BrokenError(f"hangs: no end within {seconds:.0f} s")
            time.sleep(0.002)
        return Ended(self.code or 0, self.log.read_text(errors="replace") if self.log.exists() else "")


def _run_command(words: Sequence[str], log: Path, prepare: Callable[[], None] | None) -> None:
    """Become the command: never returns."""
    code = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if prepare is not None:
            prepare()
        from torchcaps.cli import main

        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code & 0xFF)


def digest(folder: Path) -> str:
    """Hash what a finished run came to: its weights, and its metrics without the times."""
    from torchcaps.train import Run

    run = Run.open(folder)
    if run.status != "finished":
        raise BrokenError(f"status '{run.status}' after the end")
    metrics = {name: values for name, values in run.metrics().items() if name != "seconds"}
    return hashlib.sha256(run.weights.read_bytes() + repr(sorted(metrics.items())).encode()).hexdigest()


class Lab:
    """A folder with images, the result of the undisturbed training, and room for trials.

    Args:
        root: An empty folder.
        seed: Seed of every random choice.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.images = root / "images"
        _draw_images(self.images)
        self.expected: dict[tuple[str, ...], str] = {}
        self.seconds = 1.0
        # Faults that the present trial has injected beside the first.
        self.strikes = 0
        self._count = 0

    def words(self, folder: Path | None, *changes: str) -> list[str]:
        """Give the command line of a new run; without a folder it goes to ./runs."""
        out = [] if folder is None else ["--out", str(folder)]
        path = f"data.options.path={self.images}"
        return ["train", "folder", path, *_SMALL, *changes, *out, "--quiet", "--no-report"]

    def folder(self) -> Path:
        """Give the folder of a new trial, which does not exist yet."""
        self._count += 1
        trial = self.root / f"trial-{self._count:04d}"
        trial.mkdir()
        return trial / "run"

    def start(self, folder: Path, *changes: str, prepare: Callable[[], None] | None = None) -> Child:
        """Start a training in a new folder."""
        return Child(self.words(folder, *changes), self.log(folder), prepare)

    def resume(self, folder: Path, prepare: Callable[[], None] | None = None) -> Child:
        """Resume the training in a folder."""
        return Child(["train", "--resume", str(folder), "--quiet", "--no-report"], self.log(folder), prepare)

    def log(self, folder: Path) -> Path:
        """Give a new file for the output of one command."""
        self._count += 1
        return self.root / f"log-{self._count:04d}.txt"

    def reference(self, *changes: str) -> str:
        """Hash the result of the same training undisturbed; computed once per set of changes."""
        if changes not in self.expected:
            folder = self.folder()
            child = self.start(folder, *changes)
            _wait_for_record(folder, child)
            started = time.monotonic()
            ended = child.wait()
            if ended.code != 0:
                raise BrokenError(f"the undisturbed training failed with code {ended.code}: {ended.output[-400:]}")
            self.expected[changes] = digest(folder)
            if not changes:
                self.seconds = time.monotonic() - started
        return self.expected[changes]

    def pause(self, folder: Path, child: Child, *, early: bool = True) -> None:
        """Sleep until a random moment of a training: mostly after run.json is written, when there is data to lose."""
        if not early or self.rng.random() < 0.9:
            _wait_for_record(folder, child)
        time.sleep(self.rng.uniform(0.0, 1.0) * self.seconds)
        if child.poll() is not None:
            raise MissedError

    def finish(self, folder: Path, *changes: str, may_refuse: bool = True) -> str:
        """Resume a broken run to its end and compare it with the undisturbed one.

        Args:
            folder: The run.
            *changes: The changes to the recipe that the run was started with.
            may_refuse: Whether a clear refusal is acceptable: not where whole checkpoints are on disk.

        Returns:
            "equal" or "refused".

        Raises:
            BrokenError: If the result differs, or the refusal is not a clear message.
        """
        ended = self.resume(folder).wait()
        if ended.refused and may_refuse:
            return "refused"
        if ended.code != 0:
            raise BrokenError(f"resume ended with code {ended.code}: {ended.output[-400:]}")
        if digest(folder) != self.reference(*changes):
            raise BrokenError("the weights differ from those of the undisturbed training")
        return "equal"


def checkpoints(folder: Path) -> list[Path]:
    """List the checkpoints of a run, oldest first."""
    return sorted((folder / "checkpoints").glob("*.ckpt"))


def _wait_for_record(folder: Path, child: Child) -> None:
    limit = time.monotonic() + HANG
    while not (folder / "run.json").exists() and child.poll() is None and time.monotonic() < limit:
        time.sleep(0.002)


def _draw_images(root: Path) -> None:
    """Draw three classes of 20 grey images: a bright bar at one of three heights, in noise."""
    noise = np.random.default_rng(0)
    for k, name in enumerate(("high", "low", "middle")):
        (root / name).mkdir(parents=True)
        for number in range(20):
            pixels = noise.integers(0, 120, (20, 20), dtype=np.uint8)
            pixels[4 + 5 * k : 7 + 5 * k] += 120
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")


@contextlib.contextmanager
def ended_at_exit(*children: Child) -> Iterator[None]:
    """End these processes however the block ends."""
    try:
        yield
    finally:
        for child in children:
            child.kill()
