"""The Lightning callback of a run: metrics, best weights, checkpoints, and stopping on a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from torch import nn

from torchcaps.diagnostics import Snapshot
from torchcaps.train._signals import SIGNALS, Stopped
from torchcaps.train._strategies import full_state
from torchcaps.train._tables import write_diagnostics, write_metrics
from torchcaps.train.checkpoint import KEY, RunState, checkpoint_path, drop_old, run_entry
from torchcaps.train.run import Run

# From network and loss; all processes call it.
Diagnostics = Callable[[nn.Module, nn.Module], Snapshot]
# Seconds of training after which a checkpoint is due, however long a step takes.
SECONDS = 60.0


def is_better(row: dict[str, Any], best: dict[str, Any]) -> bool:
    """Return whether an epoch is better than the best one so far.

    Args:
        row: Metrics of the epoch.
        best: Metrics of the best epoch; empty if there is none.

    Returns:
        True for a higher validation accuracy or, at the same accuracy, a lower loss; always without validation.
    """
    if not best or "val_loss" not in row:
        return True
    return (row.get("val_accuracy", 0.0), -row["val_loss"]) > (best.get("val_accuracy", 0.0), -best["val_loss"])


class RunCallback(Callback):
    """Writes a row of metrics per epoch, tracks the best weights and saves checkpoints.

    The state of the run is part of each checkpoint, so that files written after the checkpoint are written again.

    Args:
        run: The run.
        diagnostics: Diagnostics to compute after each epoch.
    """

    def __init__(self, run: Run, diagnostics: Diagnostics | None = None) -> None:
        self.run = run
        self.diagnostics = diagnostics
        self.state = RunState()
        self.stop_signal = 0
        self._validated: dict[str, float] = {}
        self._epoch_ended = False
        self._alone = True
        self._saved_at, self._saved_time = 0, time.monotonic()
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Training time so far, over all resumptions."""
        return self.state.seconds + time.monotonic() - self._since

    def _advance_clock(self) -> None:
        self.state.seconds, self._since = self.seconds, time.monotonic()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._advance_clock()
        # The sums of an epoch that has ended are a row of the metrics.
        totals = torch.zeros(3) if self._epoch_ended else pl_module.sum_totals("train")
        # Only the first process writes, and only it may see the folder.
        record = self.run.record if trainer.is_global_zero else {}
        checkpoint[KEY] = run_entry(self.run.recipe, self.state, totals, trainer.world_size, record)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self.state = RunState(**checkpoint[KEY]["state"])
        # The sums are those of all processes: the first one continues them.
        pl_module.restore_totals("train", checkpoint[KEY]["train_totals"] * (trainer.global_rank == 0))
        self._since = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._saved_at, self._saved_time = trainer.global_step, time.monotonic()
        # Lightning puts its own handler of SIGTERM in front of ours, which ends the process without a checkpoint.
        if self._handlers:
            signal.signal(signal.SIGTERM, self._stop)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._epoch_ended = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        # After the last batch of an epoch, the checkpoint of the epoch follows its validation.
        if batch_idx + 1 == trainer.num_training_batches:
            return
        due, stop = self._agree(trainer)
        if due or stop:
            self._save(trainer)
        if stop:
            raise Stopped(stop)

    def _agree(self, trainer: Trainer) -> tuple[bool, int]:
        """Return whether a checkpoint is due, and the signal to stop for or 0: the same in all processes."""
        due = trainer.global_step - self._saved_at >= self.run.recipe.trainer.checkpoint_every
        due = due or time.monotonic() - self._saved_time >= SECONDS
        if trainer.world_size == 1:
            return due, self.stop_signal
        # Clocks differ, and a signal may reach one process only.
        wishes = torch.tensor([int(due), self.stop_signal], device=trainer.strategy.root_device)
        due, stop = trainer.strategy.reduce(wishes, reduce_op="max").tolist()
        return bool(due), stop

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        # Lightning resets the metrics of the validation at its end.
        self._validated = pl_module.means("val")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            **pl_module.means("train"),
            **self._validated,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "seconds": self.seconds,
        }
        self._validated, self._epoch_ended = {}, True
        state, more = self.state, {"lr": row["lr"]}
        if self.diagnostics is not None and pl_module.model.is_classifier:
            snapshot = self.diagnostics(pl_module.model, pl_module.loss)
            more |= snapshot.summary()
            state.diagnostics = [*state.diagnostics, *snapshot.rows(trainer.current_epoch + 1)]
        # The module has logged loss and accuracy.
        pl_module.log_dict(more, sync_dist=True)
        row |= more
        state.rows = [*state.rows, row]
        if is_better(row, state.best):
            state.best = {**row, "weights": full_state(pl_module.validated)}
        if trainer.is_global_zero:
            write_metrics(self.run.path, state.rows)
            write_diagnostics(self.run.path, state.diagnostics)

    def save_epoch(self, trainer: Trainer) -> None:
        """Save the checkpoint of an epoch, and end the training if it is complete or a signal came.

        Args:
            trainer: The trainer.

        Raises:
            Stopped: If a signal came.
        """
        complete = self.state.is_complete(self.run.recipe)
        # A callback such as EarlyStopping may have ended the training.
        self.state.ended = trainer.should_stop and not complete
        trainer.should_stop = trainer.should_stop or complete
        self._save(trainer)
        if not trainer.should_stop and (stop := self._agree(trainer)[1]):
            raise Stopped(stop)

    def _save(self, trainer: Trainer) -> None:
        folder = self.run.checkpoints
        trainer.save_checkpoint(checkpoint_path(folder, trainer.current_epoch + 1, trainer.global_step))
        # The new one is durable.
        if trainer.is_global_zero:
            drop_old(folder)
        self._saved_at, self._saved_time = trainer.global_step, time.monotonic()

    _handlers: dict[int, Any] | None = None

    def _stop(self, number: int, frame: Any) -> None:
        # With several processes, the one that started them ends them all.
        if self.stop_signal and self._alone:
            raise Stopped(self.stop_signal)
        self.stop_signal = number

    @contextmanager
    def listening(self, *, alone: bool) -> Iterator[None]:
        """Take a signal as the request to save and stop after the current step; a second one stops at once.

        Args:
            alone: Whether this is the only process; else a second signal is left to the process that started it.

        Yields:
            Nothing.
        """
        self._alone = alone
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # A signal that is ignored, as SIGHUP is under nohup, stays ignored.
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._stop) for number in heeded}
        try:
            yield
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers = None


class EpochCheckpoint(CheckpointCallback):
    """Saves the checkpoint of each epoch: Lightning calls it after all other callbacks, whose state is part of it.

    Args:
        callback: Callback of the run.
    """

    def __init__(self, callback: RunCallback) -> None:
        self.callback = callback

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.callback.save_epoch(trainer)
