"""A sequence of tokens with the routing of Heinsen 2022: all tokens share the weight, and no vote is computed."""

from __future__ import annotations

from functools import partial

import torch

from torchcaps.bench._case import CASES, Candidate, Case, Point, Tasks, one_axis_sweep
from torchcaps.bench._layer import forward_and_backward
from torchcaps.bench.routers import check_kernel
from torchcaps.nn import CapsLinear
from torchcaps.types import Capsules

# Pose sizes of tokens and parents.
TOKEN_DIM, PARENT_DIM = 64, 16
BASE: Point = {"batch": 16, "tokens": 1024, "parents": 10, "iters": 2}


def sequence_tasks(backend: str, point: Point) -> Tasks:
    """Return the tasks of a layer on random tokens, with the gradients of tokens, weight and router parameters."""
    torch.manual_seed(0)
    routing = {"name": "heinsen", "iters": point["iters"]}
    layer = CapsLinear(None, point["parents"], TOKEN_DIM, PARENT_DIM, routing=routing, bias=True, backend=backend)
    poses = torch.randn(point["batch"], point["tokens"], TOKEN_DIM).requires_grad_()
    activations = torch.rand(point["batch"], point["tokens"]).requires_grad_()
    return forward_and_backward(lambda: layer(Capsules(poses, activations)), [poses, activations, *layer.parameters()])


def _reference_needs(point: Point) -> float:
    return 5 * 4 * point["batch"] * point["tokens"] * point["parents"] * PARENT_DIM


CASES.add(
    "heinsen",
    Case(
        title="A sequence with the routing of Heinsen 2022: 1024 tokens of 64 to 10 capsules of 16",
        candidates=(
            Candidate("recompute", partial(sequence_tasks, "recompute")),
            Candidate("reference", partial(sequence_tasks, "reference"), memory_needed=_reference_needs),
        ),
        points=one_axis_sweep(BASE, tokens=(128, 8192), parents=(2, 100), iters=(3,)),
        quick=({**BASE, "tokens": 128},),
        check=partial(check_kernel, "heinsen"),
    ),
)
