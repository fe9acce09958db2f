from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from torchcaps.train import Run, _progress, load_recipe
from torchcaps.train._callback import RunCallback
from torchcaps.train._progress import ProgressBar

RECORD = {
    "images": {"train": 1500, "val": 20, "test": 30},
    "image_shape": [1, 8, 9],
    "num_classes": 4,
    "parameters": 5678,
}
ROW = {"train_loss": 0.25, "val_accuracy": 0.987, "seconds": 12.0}


def shown(tmp_path, terminal: bool) -> str:
    run = Run(tmp_path, load_recipe())
    run.update_record(status="running", **RECORD)
    callback = RunCallback(run)
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
    *start, last = shown(tmp_path, terminal=False).splitlines()
    assert last == "epoch 1/2  loss 0.2500  val accuracy 98.70%  12 s"
    for part in (
        "1,500 train, 20 val, 30 test images of 1x8x9 in 4 classes",
        "5,678",
        "from step 3 of 6",
        str(tmp_path),
    ):
        assert part in "\n".join(start)


def test_expected_time_is_said_once(tmp_path, monkeypatch):
    run = Run(tmp_path, load_recipe())
    run.update_record(status="running", **RECORD)
    text, clock = io.StringIO(), iter(range(0, 1000, 2))
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(clock))
    bar = ProgressBar(RunCallback(run), Console(file=text, width=100))
    trainer: Any = SimpleNamespace(global_step=0, current_epoch=0, max_epochs=2)
    module: Any = SimpleNamespace(total_steps=100)
    bar.on_train_start(trainer, module)
    for trainer.global_step in range(1, 6):
        bar.on_train_batch_end(trainer, module, None, None, 0)
    # Two seconds for each step after the first.
    assert text.getvalue().count("expected time") == 1
    assert "expected time: about 3 minutes" in text.getvalue()


def test_model_without_classes_shows_loss(tmp_path, monkeypatch):
    monkeypatch.setitem(ROW, "val_loss", 0.125)
    monkeypatch.delitem(ROW, "val_accuracy")
    assert shown(tmp_path, terminal=False).endswith("\nepoch 1/2  loss 0.2500  val loss 0.1250  12 s\n")
