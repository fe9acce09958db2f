"""The signals that end a training: it saves a checkpoint and stops. Imported without torch or Lightning."""

from __future__ import annotations

import os
import signal

# Ctrl-C, the end of a batch job, the end of a terminal session.
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
# The end of the time of a SLURM job, as `sbatch --signal=USR1@SECONDS` asks for it.
if "SLURM_JOB_ID" in os.environ and hasattr(signal, "SIGUSR1"):
    SIGNALS.append(signal.SIGUSR1)


class Stopped(Exception):  # noqa: N818 (it is no error)
    """Ends the training loop after a signal; a KeyboardInterrupt would make Lightning end the process.

    Args:
        number: The signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(number)
        self.number = number
