"""Progress of a run on stderr: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.train._callback import RunCallback
from torchcaps.train.run import Run
from torchcaps.types import Progress as Report

# Seconds of training after which the duration of the whole run is estimated.
ESTIMATE_AFTER = 3.0


@contextmanager
def testing_bar(shown: bool) -> Iterator[Report | None]:
    """Show a bar while the test split is evaluated.

    Args:
        shown: Whether to show it; it needs a terminal.

    Yields:
        A function to report progress to, or None.
    """
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    bar = Progress(TextColumn("testing"), BarColumn(complete_style="cyan"), console=console, transient=True)
    task = bar.add_task("")
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)


def describe_run(run: Run, total: int, done: int) -> list[str]:
    """Say what is trained on what, and where.

    Args:
        run: The run, whose record has been written.
        total: Number of steps of the whole run.
        done: Number of steps that an earlier process has made.

    Returns:
        The lines.
    """
    record, recipe = run.record, run.recipe
    images = ", ".join(f"{count:,} {split}" for split, count in record["images"].items())
    shape, trainer = "x".join(map(str, record["image_shape"])), recipe.trainer
    begin = f"from step {done:,} of" if done else "at most" if trainer.patience or trainer.target_accuracy else "for"
    epochs = f"{trainer.epochs} epoch{'s' if trainer.epochs > 1 else ''}"
    length = f"{begin} {total:,} steps ({epochs}, batches of {recipe.data.batch_size})"
    return [
        f"data:       {recipe.data.name}, {images} images of {shape} in {record['num_classes']} classes",
        f"model:      {recipe.model.name}, {record['parameters']:,} parameters",
        f"training:   {length}",
        f"run folder: {run.path}",
    ]


def format_duration(seconds: float) -> str:
    """Return a duration for people.

    Args:
        seconds: The duration.

    Returns:
        Seconds, minutes or hours.

    Example:
        >>> format_duration(42), format_duration(400), format_duration(10000)
        ('about 42 seconds', 'about 7 minutes', 'about 2.8 hours')
    """
    if seconds < 90:
        return f"about {seconds:.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


class ProgressBar(Callback):
    """A bar over all epochs with the newest metrics.

    Args:
        callback: Callback of the run, which has the metrics.
        console: Where to draw; by default stderr.
    """

    def __init__(self, callback: RunCallback, console: Console | None = None) -> None:
        self.callback = callback
        self.console = Console(stderr=True) if console is None else console
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("", epoch="", text="")
        # Step and time of the start; after the estimate the step is negative.
        self._first, self._started = 0, time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        total, done = pl_module.total_steps, trainer.global_step
        for line in describe_run(self.callback.run, total, done):
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._first, self._started = done, time.monotonic()
        self.bar.update(self.task, total=total, completed=done, epoch=self._epoch(trainer))
        self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.bar.update(self.task, completed=trainer.global_step, epoch=self._epoch(trainer))
        steps, seconds = trainer.global_step - self._first, time.monotonic() - self._started
        # The first step takes longer than the others.
        if steps == 1:
            self._started = time.monotonic()
        elif self._first >= 0 and seconds > ESTIMATE_AFTER:
            rest = seconds / (steps - 1) * (pl_module.total_steps - trainer.global_step)
            self._first = -pl_module.total_steps
            if rest > ESTIMATE_AFTER:
                self.console.print(f"expected time: {format_duration(rest)}", highlight=False)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        row = self.callback.state.rows[-1]
        text = f"loss {row['train_loss']:.4f}"
        if "val_accuracy" in row:
            text += f"  val accuracy {row['val_accuracy']:.2%}"
        elif "val_loss" in row:
            text += f"  val loss {row['val_loss']:.4f}"
        self.bar.update(self.task, text=text)
        if not self.console.is_terminal:
            self.console.print(f"epoch {self._epoch(trainer)}  {text}  {row['seconds']:.0f} s", highlight=False)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.bar.stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        self.bar.stop()

    @staticmethod
    def _epoch(trainer: Trainer) -> str:
        return f"{trainer.current_epoch + 1}/{trainer.max_epochs}"
