"""Processes that train one run together: started, waited for, and ended by the process that holds its lock."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from torchcaps.errors import ProcessError, TorchcapsError
from torchcaps.plugins import load_plugins
from torchcaps.train._signals import SIGNALS, Stopped

_PR_SET_PDEATHSIG = 1
# Seconds for the other processes to end by themselves after one has failed: they lose their connection to it.
_GRACE = 10.0


def run_workers(target: Callable[..., None], world: int, args: Sequence[Any], hint: str) -> int:
    """Call `target(rank, *args)` in new processes and wait for their end; none of them outlives this process.

    The first SIGINT, SIGTERM or SIGHUP is passed on, so that they save and stop; a second one ends them at once.

    Args:
        target: A function of a module.
        world: Number of processes.
        args: Arguments that can be pickled.
        hint: What to do after a process was killed.

    Returns:
        The signal that stopped them; 0 if they finished.

    Raises:
        TorchcapsError: If a process raised one, or was killed.
        RuntimeError: If a process raised another error.
    """
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    processes = [
        context.Process(target=_work, args=(sender, os.getpid(), target, rank, *args))
        for rank, (_, sender) in enumerate(pipes)
    ]
    with _signals_passed_on(processes) as received:
        try:
            with _quiet_reducer():
                for process in processes:
                    process.start()
            failed = _wait(processes)
            if failed is not None and not received:
                for process in processes:
                    process.join(_GRACE)
                # One that was killed may be seen after another that lost its connection to it.
                failed = _wait(processes)
        finally:
            for process in filter(lambda process: process.pid is not None, processes):
                process.kill()
                process.join()
    if failed is not None and not received:
        raise _error([receiver for receiver, _ in pipes], failed, hint)
    return received[0] if received else 0


@contextmanager
def _quiet_reducer() -> Iterator[None]:
    """Start processes without the advice that DDP prints from C++ where no weight is unused."""
    before = os.environ.get("TORCH_CPP_LOG_LEVEL")
    os.environ["TORCH_CPP_LOG_LEVEL"] = before or "ERROR"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TORCH_CPP_LOG_LEVEL"]


def _wait(processes: Sequence[BaseProcess]) -> BaseProcess | None:
    """Wait until all processes have ended or one has failed; return that one, rather a killed one."""
    while True:
        # Once per turn: a process may end between two looks.
        codes = [(process.exitcode, process) for process in processes]
        failed = [(code, process) for code, process in codes if code]
        if failed:
            # Negative: the signal. The others fail because they lose the connection to it.
            return min(failed, key=lambda pair: pair[0])[1]
        running = [process.sentinel for code, process in codes if code is None]
        if not running:
            return None
        wait(running)


def _error(receivers: Sequence[Connection], failed: BaseProcess, hint: str) -> Exception:
    """Return the error of a process: rather one of ours than the loss of the connection that follows from it."""
    reports = []
    for receiver in receivers:
        with suppress(EOFError, OSError, ValueError):
            if receiver.poll():
                reports.append(json.loads(receiver.recv_bytes()))
    # Rather the first mistake than the loss of a connection that follows from it.
    reports.sort(key=lambda report: report["lost"])
    ours = [report["message"] for report in reports if report["ours"]]
    code = failed.exitcode or 0
    # The others of a killed process report the loss of the connection.
    if ours and code > 0:
        return TorchcapsError(ours[0])
    if code < 0 or not reports:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        expected = "trainer.devices: expected all processes to finish"
        return TorchcapsError(f"{expected}, got one that ended early ({how}; out of memory?); {hint}")
    error = RuntimeError(reports[0]["message"])
    error.add_note(reports[0]["traceback"])
    return error


@contextmanager
def _signals_passed_on(processes: Sequence[BaseProcess]) -> Iterator[list[int]]:
    """Pass the first signal on to the processes; raise `Stopped` for a second one, or before all are started.

    Args:
        processes: The processes.

    Yields:
        The signals that were received.
    """
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1 or any(process.pid is None for process in processes):
            raise Stopped(received[0])
        for process in processes:
            # A process that has ended is not there any more.
            with suppress(OSError):
                os.kill(process.pid or 0, number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _work(sender: Connection, parent: int, target: Callable[..., None], rank: int, *args: Any) -> None:
    _end_with(parent)
    try:
        load_plugins()
        target(rank, *args)
    except Exception as error:
        ours = isinstance(error, TorchcapsError)
        message = str(error) if ours else traceback.format_exception_only(error)[-1].strip()
        lost = isinstance(error, ProcessError)
        report = {"ours": ours, "lost": lost, "message": message, "traceback": traceback.format_exc()}
        sender.send_bytes(json.dumps(report).encode("utf-8"))
        sys.exit(1)


def _end_with(parent: int) -> None:
    """End this process when its parent ends."""
    if sys.platform == "linux":
        # By the kernel, also while this process is stopped.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch_parent, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
