"""What the processes of tests/train/test_workers.py do: new processes import it by this name."""

from __future__ import annotations

import os
import signal
import time


def fail(rank: int, cls: type[Exception]) -> None:
    if rank == 1:
        raise cls("file: expected more, got 3")


def kill_itself(rank: int, pipe: str, first: int) -> None:
    """Process 1 is killed and process 0 fails; one of them does so after it has lost its connection to the other."""
    # Left open: the kernel closes it when the process ends.
    connection = os.open(pipe, os.O_WRONLY if rank == first else os.O_RDONLY)
    if rank != first:
        os.read(connection, 1)
        # Most likely, the end of the other one has been seen.
        time.sleep(0.5)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("connection closed by peer")
