from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from torchcaps.train import Run, load_recipe
from torchcaps.train._callback import RunCallback
from torchcaps.train._progress import ProgressBar

ROW = {"train_loss": 0.25, "val_accuracy": 0.987, "seconds": 12.0}


def shown(tmp_path, terminal: bool) -> str:
    callback = RunCallback(Run(tmp_path, load_recipe()))
    callback.state.rows = [ROW]
    text = io.StringIO()
    bar = ProgressBar(callback, Console(file=text, force_terminal=terminal, width=100))
    trainer: Any = SimpleNamespace(global_step=3, current_epoch=0, max_epochs=2)
    module: Any = SimpleNamespace(total_steps=6)
    bar.on_train_start(trainer, module)
    bar.on_train_batch_end(trainer, module, None, None, 2)
    bar.on_train_epoch_end(trainer, module)
    bar.bar.refresh()
    bar.on_train_end(trainer, module)
    return text.getvalue()


def test_bar_on_terminal(tmp_path):
    text = shown(tmp_path, terminal=True)
    for part in ("epoch 1/2", "50 %", "loss 0.2500  val accuracy 98.70%"):
        assert part in text


def test_lines_without_terminal(tmp_path):
    assert shown(tmp_path, terminal=False) == "epoch 1/2  loss 0.2500  val accuracy 98.70%  12 s\n"


def test_model_without_classes_shows_loss(tmp_path, monkeypatch):
    monkeypatch.setitem(ROW, "val_loss", 0.125)
    monkeypatch.delitem(ROW, "val_accuracy")
    assert shown(tmp_path, terminal=False) == "epoch 1/2  loss 0.2500  val loss 0.1250  12 s\n"
