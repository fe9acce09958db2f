"""Checkpoints: written in one move, read without running code, the newest good one found."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from torchcaps.errors import CheckpointError

KEEP = 2
_NAME = re.compile(r"step-(\d+)\.ckpt")


class CheckpointFiles(TorchCheckpointIO):
    """How Lightning writes and reads a checkpoint here.

    The file is written beside its place and moved there, and nothing is unpickled that could run code.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        torch.save(checkpoint, part)
        part.replace(path)

    def load_checkpoint(
        self, path: Any, map_location: Callable[..., Any] | None = None, weights_only: Any = True
    ) -> Any:
        return read_checkpoint(Path(path))


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the state after a step is kept."""
    return folder / f"step-{step:08d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the newest first."""
    return sorted((path for path in folder.glob("*.ckpt") if _NAME.fullmatch(path.name)), reverse=True)


def drop_old(folder: Path) -> None:
    """Keep the newest two: one to go on from, and one more in case that one is damaged."""
    for path in list_checkpoints(folder)[KEEP:]:
        path.unlink()


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds; a file that is cut short or altered is an error that names it."""
    try:
        # torch does not compare the checksums that it wrote.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is None:
            return torch.load(path, map_location="cpu", weights_only=True)
        reason = f"checksum of '{damaged}' differs"
    except Exception as error:
        reason = str(error).splitlines()[0]
    raise CheckpointError(f"checkpoint: expected a checkpoint of torchcaps, got '{path}' ({reason})")


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that can be read, with what it holds; None where there is none at all."""
    paths = list_checkpoints(folder)
    for path in paths:
        try:
            return path, read_checkpoint(path)
        except CheckpointError as error:
            if path is paths[-1]:
                raise
            warnings.warn(f"{error}; going on from the one before", stacklevel=2)
    return None
