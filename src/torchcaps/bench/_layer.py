"""The DigitCaps layer of the benchmarks: its sizes and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchcaps.bench._case import Point, Tasks

# Pose sizes of children and parents in the paper.
IN_DIM, OUT_DIM = 8, 16
DIGIT_CAPS: Point = {"batch": 128, "children": 1152, "parents": 10, "iters": 3}
# B, I, J, P, D: sizes at which a kernel is compared with the reference.
CHECKED = ((3, 7, 5, 3, 6), (5, 33, 3, 4, 17), (4, 1152, 10, 8, 16))


def vote_bytes(point: Point) -> int:
    """Return the size of all votes in float32."""
    return 4 * point["batch"] * point["children"] * point["parents"] * OUT_DIM


def forward_and_backward(layer: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> Tasks:
    """Return two tasks: forward without gradients, and forward with the gradients of all inputs."""

    def forward() -> None:
        with torch.no_grad():
            layer()

    def both() -> None:
        results = layer()
        torch.autograd.grad(results, inputs, [torch.ones_like(result) for result in results])

    return {"forward": forward, "forward+backward": both}
