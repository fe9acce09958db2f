"""Which backend serves each routing, kind of layer, device and type."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch

from torchcaps.ops._backends import kernels_of, unavailable_reason
from torchcaps.ops._kernel import Kernel, supports_all
from torchcaps.ops._routing import ROUTINGS

DEVICES = ("cpu", "cuda", "mps")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Support(NamedTuple):
    """What serves one routing in one kind of layer on one device in one type.

    Args:
        algorithm: Name of the routing.
        layer: `dense` or `conv`.
        device: Type of the device.
        dtype: Name of the type.
        backend: The backend that `auto` prefers.
        limited: Whether sizes or options can rule it out; `recompute` then serves.
    """

    algorithm: str
    layer: str
    device: str
    dtype: str
    backend: str
    limited: bool


def list_support(*, here: bool = True) -> list[Support]:
    """List what serves every routing in every kind of layer, on every device and in every type.

    Args:
        here: Leave out kernels that are not available on this machine: a library that is not built, Triton that is not
            installed. A device that this machine does not have is listed as if everything was installed.

    Returns:
        One entry per routing, kind of layer, device and type.

    Example:
        >>> next(row.backend for row in list_support(here=False) if row[:3] == ("dynamic", "dense", "cuda"))
        'triton'
    """
    rows: list[Support] = []
    for name, layer, device, dtype in itertools.product(ROUTINGS, ("dense", "conv"), DEVICES, DTYPES):
        if device == "mps" and dtype == torch.float64:
            continue
        kernel = next(k for k in kernels_of(ROUTINGS[name]) if _serves(k, layer, device, dtype, here))
        limited = kernel.unsupported is not supports_all and kernel.backend != "recompute"
        rows.append(Support(name, layer, device, str(dtype).removeprefix("torch."), kernel.backend, limited))
    return rows


def support_table(*, here: bool = True) -> list[tuple[str, ...]]:
    """Return what `list_support` lists as lines of cells: routing, kind of layer, types, and a column per device.

    Types that the same backends serve share a line; a star marks a backend that sizes or options can rule out.

    Args:
        here: As in `list_support`.

    Returns:
        The lines, the header first.

    Example:
        >>> support_table(here=False)[0]
        ('routing', 'layer', 'type', 'cpu', 'cuda', 'mps')
    """
    served: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in list_support(here=here):
        types = served.setdefault((row.algorithm, row.layer), {})
        types.setdefault(row.dtype, {})[row.device] = row.backend + "*" * row.limited
    table: list[tuple[str, ...]] = [("routing", "layer", "type", *DEVICES)]
    for (name, layer), types in served.items():
        alike: dict[tuple[str, ...], list[str]] = {}
        for dtype, backends in types.items():
            alike.setdefault(tuple(backends.get(device, "none") for device in DEVICES), []).append(dtype)
        table += [(name, layer, ", ".join(dtypes), *backends) for backends, dtypes in alike.items()]
    return table


def _serves(kernel: Kernel, layer: str, device: str, dtype: torch.dtype, here: bool) -> bool:
    if (kernel.dense if layer == "dense" else kernel.conv) is None:
        return False
    if kernel.backend == "recompute":
        return True
    if kernel.device != device:
        return False
    there = device == "cpu" or (device == "cuda" and torch.cuda.is_available())
    return not (here and there) or unavailable_reason(kernel, torch.device(device), dtype) is None
