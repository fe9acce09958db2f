"""Work that processes share through a folder, on one host or several: each item is done by one of them at a time."""

from __future__ import annotations

import _thread
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from torchcaps._files import create_text, make_folder, read_bounded, write_text
from torchcaps.errors import WriteError

Status = Literal["free", "held", "stopped", "finished", "failed"]
# Seconds between two heartbeats, and without one before another process takes over. Network file systems show a change
# to other hosts after up to a minute.
INTERVAL, TIMEOUT = 10.0, 120.0
MAX_BYTES = 2**16


@dataclass(frozen=True)
class ClaimState:
    """The state of a work item.

    Args:
        status: `free` (never claimed), `held`, `stopped` (given up, or its process is gone), `finished` or `failed`.
        error: Reason, if it failed.
        host: Host of the process that claimed it last.
        pid: Number of that process.
        claimed: How many times it was claimed.
    """

    status: Status
    error: str | None = None
    host: str | None = None
    pid: int | None = None
    claimed: int = 0


@dataclass(frozen=True)
class _Record:
    """The content of a claim file."""

    status: Status = "held"
    error: str | None = None
    host: str | None = None
    pid: int | None = None
    started: str | None = None
    scope: str | None = None
    beat: int = 0


class Claims:
    """Claims on work items, as files in a folder that all processes see.

    The file `NAME.0` is the first claim on an item, `NAME.1` the second, and so on; the last one counts. A claim is the
    exclusive creation of the next file, which is atomic on network file systems, so that one process succeeds. Its
    holder writes it again every `interval` seconds. A claim that has not changed for `timeout` seconds, by the clock of
    the process that looks at it, is given up: clocks of hosts are not compared. A process of the same host that is gone
    is noticed at once.

    Args:
        folder: The folder; it is made by the first claim.
        interval: Seconds between two heartbeats.
        timeout: Seconds without a heartbeat after which a claim may be taken over.

    Example:
        >>> import tempfile
        >>> claims = Claims(tempfile.mkdtemp())
        >>> with claims.take("a") as claim:
        ...     claims.take("a") is None, claims.state("a").status
        ...     claim.finish()
        (True, 'held')
        >>> claims.state("a").status, claims.state("b").status
        ('finished', 'free')
    """

    def __init__(self, folder: str | Path, *, interval: float = INTERVAL, timeout: float = TIMEOUT) -> None:
        self.folder = Path(folder)
        self.interval = interval
        self.timeout = timeout
        # By item: the content of the last claim, and when it was first seen.
        self._seen: dict[str, tuple[int, bytes, float]] = {}

    def state(self, name: str) -> ClaimState:
        """Return the state of an item.

        Args:
            name: Name of the item; a plain file name.

        Returns:
            The state.
        """
        return self._look(name)[1]

    def take(
        self, name: str, *, again: Collection[Status] = (), may_take_over: Callable[[], bool] = lambda: True
    ) -> Claim | None:
        """Claim an item.

        Args:
            name: Name of the item; a plain file name.
            again: Which of `finished` and `failed` items to claim once more.
            may_take_over: Called before a claim of a process that is gone is taken over; False leaves it.

        Returns:
            The claim, to be used in a `with` block, or None if the item is held by another process or done.
        """
        generation, state = self._look(name)
        if state.status == "held" or (state.status in ("finished", "failed") and state.status not in again):
            return None
        if state.status == "stopped" and self._read(name, generation - 1).status == "held" and not may_take_over():
            return None
        make_folder(self.folder)
        record = _own_record()
        path, following = (self._path(name, number) for number in (generation, generation + 1))
        return Claim(path, following, record, self.interval) if create_text(path, _dump(record)) else None

    def _look(self, name: str) -> tuple[int, ClaimState]:
        """Return the number of the next claim on an item, and its state."""
        generation, content = 0, b""
        while (text := self._content(name, generation)) is not None:
            generation, content = generation + 1, text
        if not generation:
            return 0, ClaimState("free")
        record = _parse(content)
        status = "stopped" if record.status == "held" and self._is_abandoned(name, generation, content) else None
        return generation, ClaimState(status or record.status, record.error, record.host, record.pid, generation)

    def _is_abandoned(self, name: str, generation: int, content: bytes) -> bool:
        record = _parse(content)
        if record.scope is not None and record.scope == _scope() and record.pid is not None:
            return _process_start(record.pid) != record.started
        known = self._seen.get(name)
        if known is None or known[:2] != (generation, content):
            self._seen[name] = (generation, content, time.monotonic())
            return False
        return time.monotonic() - known[2] > self.timeout

    def _read(self, name: str, generation: int) -> _Record:
        return _parse(self._content(name, generation) or b"")

    def _content(self, name: str, generation: int) -> bytes | None:
        try:
            return read_bounded(self._path(name, generation), MAX_BYTES)
        except FileNotFoundError:
            return None
        except OSError:
            # If it exists, what it says is unknown until it can be read. Else the folder itself cannot be read, and a
            # claim reports why.
            return b"" if os.path.lexists(self._path(name, generation)) else None

    def _path(self, name: str, generation: int) -> Path:
        return self.folder / f"{name}.{generation}"


class Claim:
    """A claim that this process holds inside of a `with` block; a thread writes its heartbeat.

    At the end of the block the item is `stopped` and free for others, unless `finish` or `fail` was called. If another
    process took the claim over, as after a suspension of this host, `lost` becomes True and the main thread is
    interrupted as by Ctrl-C.

    Args:
        path: File of the claim.
        following: File of the claim that would take this one over.
        record: Content of the file.
        interval: Seconds between two heartbeats.

    Example:
        >>> import tempfile
        >>> claims = Claims(tempfile.mkdtemp())
        >>> with claims.take("a") as claim:
        ...     claim.fail("no memory")
        >>> claims.state("a").error
        'no memory'
    """

    def __init__(self, path: Path, following: Path, record: Any, interval: float) -> None:
        self.path = path
        self._lost = False
        self._following = following
        self._record: _Record = record
        self._interval = interval
        self._result: tuple[Status, str | None] = ("stopped", None)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat of {path.name}", daemon=True)

    @property
    def lost(self) -> bool:
        """Whether another process took the claim over."""
        self._lost = self._lost or os.path.lexists(self._following)
        return self._lost

    def finish(self) -> None:
        """Mark the item as finished."""
        self._result = ("finished", None)

    def fail(self, error: str | None = None) -> None:
        """Mark the item as failed.

        Args:
            error: The reason.
        """
        self._result = ("failed", error)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        if not self.lost:
            status, reason = self._result
            write_text(self.path, _dump(replace(self._record, status=status, error=reason)))

    def _beat(self) -> None:
        while not self._end.wait(self._interval):
            # A file system that is full or away for a while: the next heartbeat tries again.
            with suppress(OSError, WriteError):
                if self.lost:
                    interrupt_main()
                    return
                self._record = replace(self._record, beat=self._record.beat + 1)
                write_text(self.path, _dump(self._record))


def interrupt_main() -> None:
    """Interrupt the main thread of this process as by Ctrl-C."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        # A real signal also ends a system call.
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _own_record() -> _Record:
    pid = os.getpid()
    return _Record(host=socket.gethostname(), pid=pid, started=_process_start(pid), scope=_scope())


def _scope() -> str | None:
    """Return where process numbers are unique: one start of one kernel, and one container; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _process_start(pid: int) -> str | None:
    """Return when a process started, in ticks of its kernel; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # A process that ended stays in the table until its parent asks for the exit code.
    return None if fields[0] in ("Z", "X") else fields[19]


def _dump(record: _Record) -> str:
    return json.dumps(asdict(record)) + "\n"


def _parse(content: bytes) -> _Record:
    """Read a claim; one that is empty or damaged is held by an unknown process until its time is over."""
    try:
        record = _Record(**json.loads(content))
    except (ValueError, TypeError, RecursionError):
        return _Record()
    is_valid = record.status in get_args(Status) and type(record.pid) in (int, type(None))
    return record if is_valid else _Record()
