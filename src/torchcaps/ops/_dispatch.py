"""Which implementation of a routing serves: the reference, or one of its fast twins."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops.attention import cpu as attention_cpu
from torchcaps.ops.dynamic import cpu, triton
from torchcaps.ops.em import cpu as em_cpu
from torchcaps.ops.kmeans import cpu as kmeans_cpu
from torchcaps.ops.self_attention import cpu as self_attention_cpu
from torchcaps.ops.self_routing import cpu as self_routing_cpu
from torchcaps.ops.self_routing import lean as self_routing_lean
from torchcaps.ops.uniform import lean as uniform_lean
from torchcaps.ops.uniform import random_lean
from torchcaps.ops.votes import check_poses_and_weight

Backend = Literal["auto", "reference", "lean", "cpu", "triton"]

# The twins of each algorithm. A twin is a module with three functions (`cpu` has a fourth, `why_missing`, since it can
# be absent from a machine that it could serve):
#   route(poses, weight, **inputs) -> the parents as Capsules, differentiable in all inputs; for dynamic routing and the
#     controls, whose activations follow from the poses, route(poses, weight, bias, **options) -> the poses [B, J, D];
#     or, for grids, convolve(children, weight, window, **options) -> the parents;
#   why_not(device, dtype) -> None when it can serve them, otherwise the reason and the remedy;
#   describe() -> what there is to say about it where it is available (`avx512`).
TWINS: dict[str, dict[str, ModuleType]] = {
    "dynamic": {"triton": triton, "cpu": cpu},
    "em": {"cpu": em_cpu},
    "kmeans": {"cpu": kmeans_cpu},
    "attention": {"cpu": attention_cpu},
    "self_attention": {"cpu": self_attention_cpu},
    "random": {"lean": random_lean},
    "self_routing": {"cpu": self_routing_cpu, "lean": self_routing_lean},
    "uniform": {"lean": uniform_lean},
}

_warned = False


class Kernel(NamedTuple):
    """A fast twin as `torchcaps info` lists it: `detail` describes it, or says why it is missing and what to do."""

    algorithm: str
    backend: str
    available: bool
    detail: str


def kernels() -> list[Kernel]:
    """Every fast twin, on the device it is made for, in float32.

    >>> [kernel.backend for kernel in kernels() if kernel.algorithm == "dynamic"]
    ['triton', 'cpu']
    """
    found: list[Kernel] = []
    for algorithm, twins in TWINS.items():
        for backend, candidate in twins.items():
            device = torch.device("cuda" if backend == "triton" else "cpu")
            reason = candidate.why_not(device, torch.float32)
            found.append(Kernel(algorithm, backend, reason is None, reason or candidate.describe()))
    return found


def backends(algorithm: str) -> tuple[str, ...]:
    """What an algorithm can be computed by, on some machine or other: its reference and its fast twins.

    >>> backends("dynamic")
    ('reference', 'triton', 'cpu')
    """
    return ("reference", *TWINS.get(algorithm, {}))


def check_backend(backend: str, algorithm: str) -> None:
    """Raise unless the backend exists and the algorithm has it."""
    if backend not in get_args(Backend):
        raise ConfigError(f"backend: expected one of {', '.join(get_args(Backend))}, got '{backend}'")
    known = ("auto", *backends(algorithm))
    if backend not in known:
        raise ConfigError(f"backend: expected one of {', '.join(known)} for {algorithm} routing, got '{backend}'")


def choose(backend: str, algorithm: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend that serves: `auto` becomes the fastest one available, any other must be available itself.

    >>> choose("reference", "dynamic", torch.device("cpu"), torch.float32)
    'reference'
    """
    if backend == "reference":
        return backend
    twins = TWINS.get(algorithm, {})
    if backend != "auto":
        reason = twins[backend].why_not(device, dtype)
        if reason is not None:
            raise ConfigError(f"backend: expected one that is available, got '{backend}' ({reason})")
        return backend
    for name, candidate in twins.items():
        if candidate.why_not(device, dtype) is None:
            return name
    if device.type == "cpu" and "cpu" in twins:
        _warn_once(twins["cpu"].why_missing())
    return "reference"


def twin(backend: str, algorithm: str, poses: Tensor, weight: Tensor) -> ModuleType | None:
    """The fast twin that serves poses [B, I, P] and weight [I, J, P, D], or None where the reference is to serve."""
    check_poses_and_weight(poses, weight)
    name = choose(backend, algorithm, poses.device, torch.promote_types(poses.dtype, weight.dtype))
    return None if name == "reference" else TWINS[algorithm][name]


def route(
    backend: str, algorithm: str, poses: Tensor, weight: Tensor, bias: Tensor | None, options: dict[str, Any]
) -> Tensor | None:
    """The parents' poses [B, J, D] through a fast twin, or None where the reference is to serve."""
    found = twin(backend, algorithm, poses, weight)
    return None if found is None else found.route(poses, weight, bias, **options)


def _warn_once(reason: str | None) -> None:
    global _warned
    if reason is None or _warned or torch.compiler.is_compiling():
        return
    _warned = True
    warnings.warn(f"routing runs without its CPU kernel, many times slower ({reason})", stacklevel=2)
