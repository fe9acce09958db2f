"""The callback that keeps a run: its rows, its best weights, its checkpoints, and when to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from torchcaps.train._checkpoints import checkpoint_path, drop_old
from torchcaps.train._diagnostics import Row, to_csv
from torchcaps.train._vitals import Vitals
from torchcaps.train.run import write_atomically, write_metrics


class Stopped(Exception):  # noqa: N818 (it is no error)
    """Raised inside the training loop after Ctrl-C; a KeyboardInterrupt would make Lightning end the process."""


def _better(row: dict[str, Any], best: dict[str, Any]) -> bool:
    """By accuracy, then by loss; by loss alone where the model has no classes. Without validation later is better."""
    if not best or "val_loss" not in row:
        return True
    return (row.get("val_accuracy", 0.0), -row["val_loss"]) > (best.get("val_accuracy", 0.0), -best["val_loss"])


class Keeper(Callback):
    """Adds a row of metrics per epoch, remembers the best weights, saves the state every so many steps.

    Rows, what was seen of the routing and the best weights are part of the state that is saved, so one checkpoint is
    the whole run up to its step: what was written to the folder after it is written again.
    """

    def __init__(
        self, folder: Path, checkpoint_every: int, vitals: Vitals | None = None, *, stop_at: float | None = None
    ) -> None:
        self.folder = folder
        self.checkpoint_every = checkpoint_every
        self.vitals = vitals
        self.stop_at = stop_at
        self.rows: list[dict[str, float]] = []
        self.diagnostics: list[Row] = []
        self.best: dict[str, Any] = {}
        self.stop_asked = False
        self._seconds = 0.0
        self._saved_at = 0
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Time spent so far, over all resumptions."""
        return self._seconds + time.monotonic() - self._since

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "diagnostics": self.diagnostics, "best": self.best, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self.best, self._seconds = state_dict["rows"], state_dict["best"], state_dict["seconds"]
        # A checkpoint of an older version has none.
        self.diagnostics = state_dict.get("diagnostics", [])
        self._since = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        self._saved_at = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        due = trainer.global_step - self._saved_at >= self.checkpoint_every
        # Not after the last batch of an epoch: its validation belongs to the state, too.
        last = batch_idx + 1 == trainer.num_training_batches
        if (due or self.stop_asked) and not last:
            self._save(trainer)
        if self.stop_asked and (not last or trainer.num_training_batches == 1):
            raise Stopped

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        row = {
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
            **pl_module.means("train"),
            **pl_module.means("val"),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "seconds": self.seconds,
        }
        if self.vitals is not None and pl_module.model.classifies:
            look = self.vitals(pl_module.model, pl_module.loss)
            row |= look.summary()
            self.diagnostics = [*self.diagnostics, *look.rows(trainer.current_epoch + 1)]
        self.rows = [*self.rows, row]
        if _better(row, self.best):
            weights = {name: tensor.detach().cpu().clone() for name, tensor in pl_module.answering.state_dict().items()}
            self.best = {**row, "weights": weights}
        if trainer.is_global_zero:
            write_metrics(self.folder, self.rows)
            # A model without classes has none, and no file of them.
            if self.diagnostics:
                write_atomically(self.folder / "diagnostics.csv", to_csv(self.diagnostics))
        if self.stop_at is not None and row.get("val_accuracy", 0.0) >= self.stop_at:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        checkpoints = self.folder / "checkpoints"
        trainer.save_checkpoint(checkpoint_path(checkpoints, trainer.global_step))
        if trainer.is_global_zero:
            drop_old(checkpoints)
        self._saved_at = trainer.global_step

    @contextmanager
    def listening(self, *, alone: bool) -> Iterator[None]:
        """Take Ctrl-C as the wish to stop after the step under way; a second one stops at once.

        One of several processes does not: the one that started them does.
        """

        def ask(number: int, frame: Any) -> None:
            if self.stop_asked:
                raise Stopped
            self.stop_asked = True

        if not alone or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
