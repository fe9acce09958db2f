"""The DigitCaps layer as something to measure: its sizes, the size of its votes, and what every contender does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchcaps.bench._case import Point, Tasks

# Child and parent capsules have 8 and 16 dimensions, as in the paper.
IN_DIM, OUT_DIM = 8, 16
DIGIT_CAPS: Point = {"batch": 128, "children": 1152, "parents": 10, "iters": 3}
# B, I, J, P, D: what a twin is held to its reference on before it is measured.
CHECKED = ((3, 7, 5, 3, 6), (5, 33, 3, 4, 17), (4, 1152, 10, 8, 16))


def vote_bytes(point: Point) -> int:
    """The size of all votes in float32."""
    return 4 * point["batch"] * point["children"] * point["parents"] * OUT_DIM


def forward_and_backward(layer: Callable[[], Sequence[Tensor]], inputs: Sequence[Tensor]) -> Tasks:
    """Forward alone, and forward with the gradients of all inputs."""

    def forward() -> None:
        with torch.no_grad():
            layer()

    def both() -> None:
        results = layer()
        torch.autograd.grad(results, inputs, [torch.ones_like(result) for result in results])

    return {"forward": forward, "forward+backward": both}
