"""Progress of a run on stderr: a bar on a terminal, a line per epoch elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, Trainer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.train._callback import RunCallback
from torchcaps.types import Progress as Report


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

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        total, done = pl_module.total_steps, trainer.global_step
        self.bar.update(self.task, total=total, completed=done, epoch=self._epoch(trainer))
        self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.bar.update(self.task, completed=trainer.global_step, epoch=self._epoch(trainer))

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
