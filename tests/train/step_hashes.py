"""Record what a training computes, step by step: number of threads and hash of the weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchcaps.train._callback import RunCallback


def recorded(file: Path, after: Callable[..., None] = RunCallback.on_train_batch_end) -> Callable[..., None]:
    """Return a hook for the end of a batch that writes a line and then calls the one that it replaces."""

    def on_train_batch_end(self: RunCallback, trainer: Any, module: Any, *args: Any) -> None:
        weights = b"".join(weight.detach().numpy().tobytes() for weight in module.model.parameters())
        line = {"threads": torch.get_num_threads(), "hash": hashlib.sha256(weights).hexdigest()[:16]}
        with file.open("a") as lines:
            lines.write(json.dumps({"step": trainer.global_step, **line}) + "\n")
        after(self, trainer, module, *args)

    return on_train_batch_end


def read_steps(file: Path) -> dict[int, dict[str, Any]]:
    """Read the lines by step; of a step that was computed twice, the second."""
    return {line["step"]: line for line in map(json.loads, file.read_text().splitlines())}
