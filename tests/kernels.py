"""Call one kernel of a routing directly, as tests of kernels do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.ops import ROUTINGS, Kernel
from torchcaps.types import Capsules


def find_kernel(algorithm: str, backend: str = "cpu") -> Kernel:
    """Return the kernel of an algorithm for a backend."""
    return next(kernel for kernel in ROUTINGS[algorithm].kernels if kernel.backend == backend)


def dense(
    algorithm: str,
    poses: Tensor,
    weight: Tensor,
    *,
    backend: str = "cpu",
    activations: Tensor | None = None,
    **params: Any,
) -> Capsules:
    """Run the dense kernel of an algorithm; without activations they are the lengths of the poses."""
    present = torch.linalg.vector_norm(poses, dim=-1) if activations is None else activations
    call = find_kernel(algorithm, backend).dense
    assert call is not None
    return call(Capsules(poses, present), weight, **params)


def joined(parents: Capsules) -> Tensor:
    """Return poses and activations of the parents as one tensor [..., D + 1]."""
    return torch.cat([parents.poses, parents.activations.unsqueeze(-1)], dim=-1)
