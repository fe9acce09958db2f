"""Provenance of numbers: versions, commit, machine, time."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import torchcaps


def provenance() -> dict[str, Any]:
    """Return where numbers come from.

    Returns:
        `versions`, `commit` and `machine`.
    """
    return {"versions": versions(), "commit": commit(), "machine": machine()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that numbers depend on.

    Returns:
        The versions by package.

    Example:
        >>> sorted(versions())
        ['lightning', 'numpy', 'python', 'torch', 'torchcaps']
    """
    packages = {name: metadata.version(name) for name in ("lightning", "numpy", "torch")}
    return {"torchcaps": torchcaps.__version__, "python": platform.python_version(), **packages}


def commit() -> str | None:
    """Return the git commit of torchcaps.

    Returns:
        The hash, with "-dirty" if files differ from it; None outside of a checkout of torchcaps.
    """
    package = Path(torchcaps.__file__).resolve().parent
    try:
        top = _git(package, "rev-parse", "--show-toplevel")
        # The package may be installed inside the checkout of another project.
        if Path(top).resolve() / "src" / "torchcaps" != package:
            return None
        return _git(package, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def machine() -> dict[str, Any]:
    """Return a description of the machine.

    Returns:
        Processor, usable cores, threads of torch, memory in GiB, accelerator, system.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": _processor(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "memory_gib": _memory(),
        "accelerator": accelerator,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def now() -> str:
    """Return the time in UTC, to the second.

    Returns:
        The time in ISO format.
    """
    return datetime.now(UTC).isoformat(timespec="seconds")
