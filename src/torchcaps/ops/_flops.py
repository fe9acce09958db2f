"""Floating-point operations of the custom operators, for `torch.utils.flop_counter.FlopCounterMode`.

As everywhere in torch, only products count: 2 operations per multiply-add of the votes, for each pass over the votes,
and as many for the gradients of poses and of weight. `torch.utils.flop_counter` imports triton, which takes longer than
torchcaps does; so the formulas are registered when it is imported.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

_COUNTER = "torch.utils.flop_counter"
_formulas: dict[str, Callable[..., int]] = {}


class Cost(NamedTuple):
    """What an operator computes: operations of all votes, passes over them, and passes of its backward operator."""

    votes: int
    forward: int
    backward: int

    def gradients(self, count: int) -> int:
        """Return the operations of the backward operator, where `count` of poses and weight have a gradient."""
        return self.votes * (self.backward + count)


def dense_votes(poses: Tensor, weight: Tensor) -> int:
    """Return the operations of the votes of poses [B, I, P] through weight [I, J, P, D] or [J, P, D]."""
    return 2 * poses.numel() * weight.shape[-3] * weight.shape[-1]


def dynamic_cost(poses: Tensor, weight: Tensor, iters: int, last_only: bool) -> Cost:
    """Return the cost of dynamic routing in a dense layer: one pass per iteration, forward and backward.

    The first coupling is uniform: with one iteration, the gradients do not depend on the votes.
    """
    return Cost(dense_votes(poses, weight), iters, 0 if iters == 1 else 1 if last_only else iters)


def register_flops(name: str, formula: Callable[..., int]) -> None:
    """Register the formula of an operator.

    Args:
        name: Name of the operator without namespace.
        formula: Returns the number of operations from the arguments of the operator.
    """
    _formulas[name] = formula
    if _COUNTER in sys.modules:
        _register(name)


def _register(name: str) -> None:
    from torch.utils.flop_counter import register_flop_formula

    @functools.wraps(_formulas[name])
    def formula(*args: Any, out_val: Any = None) -> int:
        return _formulas[name](*args)

    register_flop_formula(getattr(torch.ops.torchcaps, name), get_raw=True)(formula)


class _OnImport(MetaPathFinder):
    """Registers all formulas after the import of the counter."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None, or for the counter its specification with a loader that registers the formulas."""
        if fullname != _COUNTER or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for name in _formulas:
                _register(name)

        spec.loader.exec_module = exec_module
        return spec


if _COUNTER not in sys.modules:
    sys.meta_path.insert(0, _OnImport())
