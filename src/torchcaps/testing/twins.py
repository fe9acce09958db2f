"""A fast twin held to its reference, by a tolerance that it has to earn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def assert_matches(
    twin: Function,
    reference: Function,
    inputs: Sequence[Tensor | None],
    *,
    dtype: torch.dtype = torch.float32,
    factor: float = 2.0,
) -> None:
    """Raise AssertionError unless the twin is about as exact as its reference, in value and in every gradient.

    Both are functions of `inputs` with one tensor as result; exact is what the reference gives in float64. For the
    result and for the gradient of every input, with random weights on the result, the twin has to keep
    |twin - exact| <= factor * |reference - exact| + a few roundings, where |.| is the root mean square and the
    reference runs in `dtype` too. For a twin in float64 it runs in float32, and its error is scaled down to float64.

    >>> assert_matches(lambda x: x * x, lambda x: x**2, [torch.randn(5)])
    """
    narrow = torch.float32 if dtype == torch.float64 else dtype
    exact = _differentiate(reference, inputs, torch.float64)
    eager = _differentiate(reference, inputs, narrow)
    got = _differentiate(twin, inputs, dtype)
    rounding = torch.finfo(dtype).eps
    scale = rounding / torch.finfo(narrow).eps
    for name, right, theirs, ours in zip(_names(inputs), exact, eager, got, strict=True):
        if ours.shape != right.shape:
            raise AssertionError(f"{name}: expected {tuple(right.shape)}, got {tuple(ours.shape)}")
        allowed = factor * scale * _size(theirs.double() - right) + 4 * rounding * _size(right)
        error = _size(ours.double() - right)
        # Written so that a NaN fails.
        if not error <= allowed:
            raise AssertionError(f"{name}: expected an error of at most {allowed:.3g}, got {error:.3g}")


def _differentiate(function: Function, inputs: Sequence[Tensor | None], dtype: torch.dtype) -> list[Tensor]:
    # `to` keeps the strides, so that a tensor that is not contiguous arrives as one.
    leaves = [None if tensor is None else tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    out = function(*leaves)
    weights = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)
    grads = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], weights)
    return [out.detach(), *grads]


def _names(inputs: Sequence[Tensor | None]) -> list[str]:
    return ["result", *(f"gradient of input {k}" for k, tensor in enumerate(inputs) if tensor is not None)]


def _size(tensor: Tensor) -> float:
    return tensor.square().mean().sqrt().item() if tensor.numel() else 0.0
