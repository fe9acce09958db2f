"""The folder of a run: its name, and the lock against other processes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from torchcaps._files import make_folder, naming, sync_folder
from torchcaps.errors import CheckpointError, WriteError

LOCK = ".lock"
# Default names that are tried in one second.
_MOST_NAMES = 1000


def claim_folder(name: str) -> Path:
    """Make a new folder in runs/; of several processes at once, each gets its own.

    Args:
        name: Start of the name of the folder; the time follows.

    Returns:
        The folder.

    Raises:
        CheckpointError: If no name is free.
        WriteError: If the folder cannot be made.
    """
    stamp = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, _MOST_NAMES + 1):
        path = Path("runs") / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            with naming(path):
                make_folder(path.parent)
                path.mkdir()
                sync_folder(path.parent)
        except WriteError as error:
            if error.errno != errno.EEXIST:
                raise
            continue
        return path
    raise CheckpointError(f"folder: expected a free name, got {_MOST_NAMES} folders like '{Path('runs') / stamp}'")


def make_or_use(path: Path) -> Path:
    """Return a folder that the user names, which may be a link; make it if it is missing.

    Args:
        path: The folder.

    Returns:
        The folder.
    """
    return path if path.is_dir() else make_folder(path)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes; the lock ends with the process.

    Args:
        folder: The folder.

    Yields:
        Nothing.

    Raises:
        CheckpointError: If another process holds the lock.
    """
    file = folder / LOCK
    lock = FileLock(file, timeout=0)
    try:
        # Opening empties it: never somebody's file that a link in a run folder points to.
        if os.path.lexists(file) and (not stat.S_ISREG(file.lstat().st_mode) or file.lstat().st_nlink > 1):
            raise CheckpointError(f"run: expected a plain lock file, got a link or folder '{file}' (remove it)")
        lock.acquire()
    except Timeout:
        raise CheckpointError(f"run: expected a run that no other process uses, got '{folder}'") from None
    except OSError as error:
        raise CheckpointError(f"run: expected a folder to write to, got '{folder}' ({error})") from None
    try:
        yield
    finally:
        lock.release()
