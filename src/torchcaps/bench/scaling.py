"""How time and memory of every router and kind of layer grow: the measurement behind `docs/scaling.md`.

Each pair of layer kind and router has a process of its own, which measures forward and backward at small sizes, one
size varied at a time, and at one far point that no fit sees.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from torchcaps.bench._case import Point
from torchcaps.bench._layer import forward_and_backward
from torchcaps.bench.em import make_children
from torchcaps.bench.measure import available_memory, in_own_process, resident_memory, trim_memory
from torchcaps.nn import ROUTERS, CapsConv2d, CapsLinear, make_router
from torchcaps.train.environment import commit, machine, now, versions
from torchcaps.types import Capsules

NAME = "scaling"
TITLE = "How the cost of capsules grows"
# Seconds of timing at a point, after one call that is not timed.
SECONDS = 0.1
# Side and stride of the kernel of convolutional layers.
KERNEL, STRIDE = 3, 2
DENSE: Point = {"batch": 16, "children": 256, "parents": 16, "pose": 16}
CONV: Point = {"batch": 8, "grid": 12, "types": 8, "parents": 16}
AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "dense": {"batch": (4, 64), "children": (64, 1024), "parents": (4, 64), "pose": (8, 32)},
    "shared": {"batch": (4, 64), "children": (64, 1024), "parents": (4, 64), "pose": (8, 32)},
    "conv": {"batch": (2, 32), "grid": (6, 24), "types": (4, 16), "parents": (8, 32)},
}
# No fit sees this point: it shows how far a fit can be trusted beyond the sizes of its points.
FAR: dict[str, Point] = {
    "dense": {"batch": 16, "children": 512, "parents": 128, "pose": 16},
    "shared": {"batch": 16, "children": 512, "parents": 128, "pose": 16},
    "conv": {"batch": 8, "grid": 24, "types": 16, "parents": 32},
}
# Sides of images at which the backbone is measured, and images of a step.
SIDES, IMAGES = (64, 112, 224), 4
BACKBONE = "resnet10"


def points(kind: str) -> list[Point]:
    """Return the points of a layer kind: the base, both sides of it along each axis, and the far point.

    Args:
        kind: `dense`, `shared` or `conv`.

    Returns:
        The points; the far one is the last.
    """
    base = CONV if kind == "conv" else DENSE
    moved = [{**base, axis: value} for axis, values in AXES[kind].items() for value in values]
    return [base, *moved, FAR[kind]]


def layer_call(kind: str, router: str, point: Point) -> Callable[[], object]:
    """Return forward and backward of one layer.

    Args:
        kind: `dense` (one weight per child and parent), `shared` (one per parent) or `conv` (4x4 poses, 3x3, stride 2).
        router: Name of the router.
        point: The sizes.

    Returns:
        A function that can be called repeatedly.
    """
    torch.manual_seed(0)
    routing = make_router(router)
    if kind == "conv":
        layer = CapsConv2d(point["types"], point["parents"], KERNEL, STRIDE, routing=routing)
        children = make_children(point)
    else:
        count, pose = point["children"], point["pose"]
        layer = CapsLinear(None if kind == "shared" else count, point["parents"], pose // 2, pose, routing=routing)
        poses = torch.rand(point["batch"], count, pose // 2).sub_(0.5).requires_grad_()
        children = Capsules(poses, torch.rand(point["batch"], count).requires_grad_())
    read = [children.poses, children.activations] if routing.reads_activations else [children.poses]
    weights = [weight for weight in layer.parameters() if weight.requires_grad]
    return forward_and_backward(lambda: layer(children), [*read, *weights])["forward+backward"]


def backbone_call(side: int) -> Callable[[], object]:
    """Return a training step without update of the backbone with a linear head, on random images."""
    from torchcaps.models import create_model

    torch.manual_seed(0)
    model = create_model("backbone_linear", (3, side, side), 1000, backbone=BACKBONE)
    images = torch.rand(IMAGES, 3, side, side)
    return lambda: model(images).activations.sum().backward()


def measure_call(call: Callable[[], object], seconds: float = SECONDS) -> dict[str, float]:
    """Return the minimum of the times of a call, and how far the resident memory rises in MB."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or (time.perf_counter() < end and len(times) < 20):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    gc.collect()
    trim_memory()
    before = resident_memory(reset=True)
    call()
    return {"seconds": min(times), "mb": (resident_memory(peak=True) - before) / 1e6, "rounds": len(times)}


def measure_pair(kind: str, router: str, chosen: list[Point]) -> list[dict[str, Any]]:
    """Measure one layer kind with one router; a point that fails has the reason.

    Args:
        kind: Kind of layer.
        router: Name of the router.
        chosen: Sizes to measure.

    Returns:
        One measurement per point.
    """
    rows: list[dict[str, Any]] = []
    for point in chosen:
        row: dict[str, Any] = {"kind": kind, "router": router, "point": dict(point)}
        # Any error is a result to report.
        try:
            rows.append({**row, **measure_call(layer_call(kind, router, point))})
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            rows.append({**row, "error": f"{type(error).__name__}: {lines[0]}"})
    return rows


def run_scaling(
    *, quick: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Measure all routers and layer kinds, the backbone, and training in two processes.

    Args:
        quick: Whether to measure two routers only.
        progress: Called with the numbers of done and of all steps.

    Returns:
        The result, with machine, versions and commit.

    Example:
        >>> run_scaling(quick=True)  # doctest: +SKIP
    """
    from torchcaps.bench.scaling_ddp import measure_processes

    routers = ["dynamic", "em"] if quick else ROUTERS.names()
    pairs = [(kind, router) for kind in AXES for router in routers]
    rows: list[dict[str, Any]] = []
    for done, (kind, router) in enumerate(pairs):
        progress(done, len(pairs) + 2)
        rows += _in_process(kind, router)
    progress(len(pairs), len(pairs) + 2)
    backbone = [{"side": side, "images": IMAGES, **measure_call(backbone_call(side))} for side in SIDES]
    progress(len(pairs) + 1, len(pairs) + 2)
    processes = measure_processes(quick=quick)
    progress(len(pairs) + 2, len(pairs) + 2)
    return {
        "benchmark": NAME,
        "title": TITLE,
        "quick": quick,
        "date": now(),
        "commit": commit(),
        "versions": versions(),
        "machine": {**machine(), "available_mb": round(available_memory() / 1e6)},
        "rows": rows,
        "backbone": backbone,
        "processes": processes,
    }


def _in_process(kind: str, router: str) -> list[dict[str, Any]]:
    found = in_own_process("torchcaps.bench.scaling", kind, router)
    if isinstance(found, str):
        return [{"kind": kind, "router": router, "point": dict(point), "error": found} for point in points(kind)]
    return found["rows"]


if __name__ == "__main__":
    _, kind_name, router_name = sys.argv
    print(json.dumps({"rows": measure_pair(kind_name, router_name, points(kind_name))}))
