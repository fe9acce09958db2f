"""`torchcaps info`: versions, devices and available kernels."""

from __future__ import annotations

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
    """Add no arguments."""


def _run(args: Namespace, out: Output) -> int:
    from torchcaps.ops import support_table

    versions, devices, kernels, support = _versions(), _devices(), _kernels(), _support()
    data = os.environ.get("TORCHCAPS_DATA")
    out.document({"versions": versions, "devices": devices, "kernels": kernels, "support": support, "data": data})
    out.table(("package", "version"), list(versions.items()))
    out.facts({**devices, "data": data or "the user's cache folder (TORCHCAPS_DATA is not set)"})
    rows = [(k["algorithm"], k["backend"], "yes" if k["available"] else "no", k["detail"]) for k in kernels]
    out.table(("routing", "backend", "available", "detail"), rows)
    header, *lines = support_table()
    out.table(header, lines)
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
    """Return the kernels, whether each is available on this machine, and why not."""
    from torchcaps.ops import list_kernels

    return [kernel._asdict() for kernel in list_kernels()]


def _support() -> list[dict[str, Any]]:
    """Return what serves each routing, kind of layer, device and type on this machine."""
    from torchcaps.ops import list_support

    return [row._asdict() for row in list_support()]


VERB = Verb(
    name="info",
    summary="show versions, devices and kernels, for a bug report",
    description="Shows the installed versions, the devices and number of threads that torch uses, the data folder, and "
    "the routing kernels that are available on this machine. The last table shows which backend serves each routing in "
    "dense and convolutional layers, by device and type; a star marks a kernel that some sizes or options rule out, "
    "where recompute serves instead.",
    examples=(
        ("torchcaps info", "as tables"),
        ("torchcaps info --json", "as JSON, to attach to a bug report"),
    ),
    configure=_configure,
    run=_run,
)
