"""`torchcaps info`: versions, devices, and which kernels are available."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from argparse import ArgumentParser, Namespace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "matplotlib", "pillow", "safetensors")


def _configure(parser: ArgumentParser) -> None:
    """No arguments beside those of all verbs."""


def _run(args: Namespace, out: Output) -> int:
    versions, devices, kernels = _versions(), _devices(), _kernels()
    data = os.environ.get("TORCHCAPS_DATA")
    out.document({"versions": versions, "devices": devices, "kernels": kernels, "data": data})
    out.table(("package", "version"), list(versions.items()))
    out.facts({**devices, "data": data or "TORCHCAPS_DATA is not set"})
    rows = [(k["algorithm"], k["backend"], "yes" if k["available"] else "no", k["detail"]) for k in kernels]
    if rows:
        out.table(("routing", "kernel", "available", ""), rows)
    return 0


def _versions() -> dict[str, str]:
    from torchcaps import __version__

    found = {"torchcaps": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _devices() -> dict[str, Any]:
    import torch

    cuda = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "cuda": ", ".join(cuda) or "none",
        "mps": "yes" if torch.backends.mps.is_available() else "none",
    }


def _kernels() -> list[dict[str, Any]]:
    """The fast twins of the routings: which there are, which of them can run here, and why others cannot."""
    if importlib.util.find_spec("torchcaps.ops._dispatch") is None:
        return []
    return [kernel._asdict() for kernel in importlib.import_module("torchcaps.ops._dispatch").kernels()]


VERB = Verb(
    name="info",
    summary="versions, devices and kernels: what to add to a bug report",
    description="Says which versions are installed, which devices torch can use and with how many threads, where "
    "data are looked for, and which fast routing kernels are available on this machine.",
    examples=(
        ("torchcaps info", "for people"),
        ("torchcaps info --json", "for machines, and for a bug report"),
    ),
    configure=_configure,
    run=_run,
)
