"""Checkpoints of a run: format, identity, durable writing and safe reading.

A checkpoint is what Lightning saves (model, optimiser, loops) and one more entry, `KEY`, with everything of ours: the
format version, what the checkpoint belongs to, and the state of the run.
"""

from __future__ import annotations

import io
import logging
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from torchcaps._files import MAX_TENSORS, make_folder, open_regular, replacing
from torchcaps.diagnostics.history import Row
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.train.recipe import Recipe, recipe_hash

logger = logging.getLogger(__name__)

FORMAT = 2
KEY = "run"
# Checkpoints that are kept: the newest, one more in case that one is damaged, and the last one of each of the newest
# epochs, as far as all of them take at most this number of bytes.
NEWEST, EPOCHS, BYTES = 2, 10, 2**29
# Bytes of what is not a tensor: rows of metrics and diagnostics. Their objects take up to sixty times as much memory.
MAX_OBJECTS = 2**26
_NAME = re.compile(r"epoch-(\d+)-step-(\d+)\.ckpt")
_ENTRIES = ("format", "recipe_hash", "recipe", "seed", "threads", "world_size", "state", "train_totals", "record")


@dataclass
class RunState:
    """State of a run that is not Lightning's.

    Attributes:
        rows: The rows of metrics.csv.
        diagnostics: The rows of diagnostics.csv.
        best: The row of the best epoch, and its `weights`; empty before the first epoch has ended.
        seconds: Training time so far, over all resumptions.
        ended: Whether a callback ended the training early.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    diagnostics: list[Row] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    ended: bool = False

    def is_complete(self, recipe: Recipe) -> bool:
        """Return whether training has ended: by its epochs, target accuracy, patience or a callback.

        Args:
            recipe: Recipe of the run.

        Returns:
            True if no epoch is left.
        """
        target = recipe.trainer.target_accuracy
        reached = target is not None and bool(self.best) and self.best["val_accuracy"] >= target
        patience = recipe.trainer.patience
        stalled = patience is not None and bool(self.best) and len(self.rows) - self.best["epoch"] >= patience
        return self.ended or reached or stalled or len(self.rows) >= recipe.trainer.epochs


class Checkpoint(NamedTuple):
    """A checkpoint that was read: its file and its content."""

    path: Path
    content: dict[str, Any]

    @property
    def state(self) -> RunState:
        """The state of the run."""
        return RunState(**self.content[KEY]["state"])

    def model_weights(self) -> tuple[dict[str, torch.Tensor], str]:
        """Return the weights of the best epoch so far; before the first epoch has ended, those of the last step.

        Returns:
            The weights of the model, and a phrase that names their epoch and step.

        Raises:
            CheckpointError: If the checkpoint has no weights of a model.
        """
        best, done = self.state.best, len(self.state.rows)
        if best:
            which = f"weights of epoch {best['epoch']:.0f} (step {best['step']:,.0f}), the best of the {done} so far"
            return best["weights"], which
        state, step = self.content.get("state_dict", {}), self.content.get("global_step", 0)
        # The moving average is what an epoch would validate and keep.
        prefix = "ema.module." if any(name.startswith("ema.") for name in state) else "model."
        weights = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        if not weights:
            raise CheckpointError(f"checkpoint: expected weights of a model, found none in '{self.path}'")
        return weights, f"weights of step {step:,} in epoch 1, which are not validated yet"


class CheckpointFiles(TorchCheckpointIO):
    """Lightning's checkpoint plugin: writes atomically and durably, reads without unpickling code.

    Args:
        loaded: A checkpoint that has been read already, so that it is not read twice.
    """

    def __init__(self, loaded: Checkpoint | None = None) -> None:
        self.loaded = loaded

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint.

        Args:
            checkpoint: The content.
            path: The file.
            storage_options: Ignored.

        Raises:
            ConfigError: If the state of a callback could not be read again without running code.
        """
        path = Path(path)
        _check_callbacks(checkpoint.get("callbacks", {}))
        make_folder(path.parent)
        with replacing(path) as file:
            torch.save(checkpoint, file)
        logger.info("checkpoint: %s", path)

    def load_checkpoint(
        self, path: Any, map_location: Callable[..., Any] | None = None, weights_only: Any = True
    ) -> Any:
        """Read a checkpoint.

        Args:
            path: The file.
            map_location: Ignored: tensors are loaded to the CPU.
            weights_only: Ignored: code is never run.

        Returns:
            The content.
        """
        if self.loaded is not None and self.loaded.path == Path(path):
            content, self.loaded = self.loaded.content, None
            return content
        return read_checkpoint(Path(path))


def _check_callbacks(states: Mapping[str, Any]) -> None:
    for name, state in states.items():
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        try:
            torch.load(file, weights_only=True)
        except pickle.UnpicklingError:
            raise ConfigError(
                f"callbacks: expected state_dict() of tensors, numbers, strings, lists and dicts, got {name}: {state!r}"
            ) from None


def run_entry(
    recipe: Recipe, state: RunState, train_totals: torch.Tensor, world_size: int, record: Mapping[str, Any]
) -> dict[str, Any]:
    """Return our entry of a checkpoint, in types that load without code.

    Args:
        recipe: Recipe of the run.
        state: State of the run.
        train_totals: Sums of the training epoch so far.
        world_size: Number of processes.
        record: Content of run.json, from which it can be rebuilt.

    Returns:
        The entry.
    """
    return {
        "format": FORMAT,
        "recipe_hash": recipe_hash(recipe),
        "recipe": recipe.to_toml(),
        "seed": recipe.seed,
        "threads": torch.get_num_threads(),
        "world_size": world_size,
        "state": dict(vars(state)),
        "train_totals": train_totals,
        "record": dict(record),
    }


def checkpoint_path(folder: Path, epoch: int, step: int) -> Path:
    """Return the file of a checkpoint.

    Args:
        folder: Folder of the checkpoints.
        epoch: Number of the current epoch, from 1.
        step: Number of training steps.

    Returns:
        The path.

    Example:
        >>> checkpoint_path(Path("checkpoints"), 3, 300).name
        'epoch-0003-step-00000300.ckpt'
    """
    return folder / f"epoch-{epoch:04d}-step-{step:08d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest first.

    Args:
        folder: Folder of the checkpoints.

    Returns:
        The paths.
    """
    named = [(int(match[2]), path) for path in folder.glob("*.ckpt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(named, reverse=True)]


def drop_old(folder: Path, *, most_bytes: int = BYTES) -> None:
    """Delete checkpoints except the newest two and the last one of each of the newest ten epochs.

    Of large ones fewer are kept: the newest two, and others as far as all of them take at most `most_bytes`. The
    weights of the best epoch are part of every checkpoint. Call it after the newest one has been written durably.

    Args:
        folder: Folder of the checkpoints.
        most_bytes: Largest number of bytes of all that are kept, beyond the newest two.
    """
    paths = list_checkpoints(folder)
    # In this order, the first path of an epoch is its last checkpoint.
    last_of_epoch: dict[str, Path] = {}
    for path in paths:
        last_of_epoch.setdefault(path.name.partition("-step")[0], path)
    kept = {*paths[:NEWEST], *list(last_of_epoch.values())[:EPOCHS]}
    used = 0
    for number, path in enumerate(paths):
        # Housekeeping: what cannot be deleted stays.
        with suppress(OSError):
            used += path.stat().st_size if path in kept else 0
            if path not in kept or (number >= NEWEST and used > most_bytes):
                path.unlink()


def saved_entry(folder: Path) -> dict[str, Any] | None:
    """Return our entry of the newest checkpoint that is not damaged.

    Args:
        folder: Folder of the checkpoints.

    Returns:
        The entry; None if no checkpoint can be read.
    """
    for path in list_checkpoints(folder):
        with suppress(CheckpointError):
            return read_checkpoint(path)[KEY]
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint without running code from it.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        CheckpointError: If the file is damaged, or is not a checkpoint of this format.
    """
    try:
        with open_regular(path, MAX_TENSORS) as file:
            # torch does not compare the checksums that it wrote.
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    _check_member(member)
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"checksum of '{damaged}' differs")
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
        entry: Any = content.get(KEY) if isinstance(content, dict) else None
        if not isinstance(entry, dict):
            raise ValueError(f"no entry {KEY}")
        if entry.get("format") != FORMAT:
            raise ValueError(f"format {entry.get('format')!r}, this version reads {FORMAT}")
        missing = [name for name in _ENTRIES if name not in entry]
        if missing:
            raise ValueError(f"no entry {KEY}.{missing[0]}")
        return dict(content)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    raise CheckpointError(f"checkpoint: expected a checkpoint of torchcaps, got '{path}' ({reason})")


def _check_member(member: zipfile.ZipInfo) -> None:
    """Raise ValueError unless memory stays in proportion to the file: torch would decompress a member of any size."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"'{member.filename}' is compressed, which torch does not write")
    if member.filename.endswith("/data.pkl") and member.file_size > MAX_OBJECTS:
        raise ValueError(f"{member.file_size:,} bytes in '{member.filename}', expected at most {MAX_OBJECTS:,}")


def newest_checkpoint(folder: Path, recipe: Recipe) -> Checkpoint | None:
    """Read the newest checkpoint of a run that is not damaged.

    Args:
        folder: Folder of the checkpoints.
        recipe: Recipe of the run.

    Returns:
        The checkpoint; None if the folder has none.

    Raises:
        CheckpointError: If all checkpoints are damaged, or the newest belongs to another run.
    """
    paths = list_checkpoints(folder)
    for number, path in enumerate(paths, start=1):
        try:
            checkpoint = Checkpoint(path, read_checkpoint(path))
        except CheckpointError as error:
            if number == len(paths):
                raise CheckpointError(
                    f"{error}; all {number} checkpoints are damaged (`train --resume RUN --restart` starts the run "
                    "again from its first step and keeps the damaged files aside)"
                ) from None
            warnings.warn(f"{error}; using the one before", stacklevel=2)
            continue
        entry = checkpoint.content[KEY]
        if entry["recipe_hash"] != recipe_hash(recipe):
            raise CheckpointError(
                f"checkpoint: expected one of this run, got '{path}' of another recipe or seed "
                f"(seed {entry['seed']}; remove the file to resume from the one before)"
            )
        return checkpoint
    return None


def warn_if_computed_differently(checkpoint: Checkpoint, world_size: int) -> None:
    """Warn if the number of threads or processes differs from that of the checkpoint: the last bits will too.

    Args:
        checkpoint: The checkpoint to resume from.
        world_size: Number of processes now.
    """
    now = {"threads": torch.get_num_threads(), "world_size": world_size}
    for name, value in now.items():
        before = checkpoint.content[KEY][name]
        if before != value:
            warnings.warn(
                f"{name}: expected {before}, as in '{checkpoint.path.name}', got {value} (the weights will differ "
                "from those of an uninterrupted run by rounding)",
                stacklevel=2,
            )
