"""Comparison of a kernel with its reference, with a tolerance derived from the reference's own rounding error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Function = Callable[..., Tensor]


def assert_matches_reference(
    kernel: Function,
    reference: Function,
    inputs: Sequence[Tensor | None],
    *,
    dtype: torch.dtype = torch.float32,
    factor: float = 2.0,
    draws: int = 1,
) -> None:
    """Check that a kernel is about as exact as its reference, in value and in every gradient.

    The exact result is that of the reference in float64. The error of the kernel may be `factor` times that of the
    reference in `dtype`, plus a few roundings. Both the root mean square and, with twice the factor, the maximum over
    all elements are compared. The gradients are those of a sum of the result with random weights.

    With 16 bits, the inputs are rounded first and the reference runs in float32. A kernel passes that computes in
    float32 and rounds its result and its gradients; one that sums in 16 bits does not.

    Args:
        kernel: Function of `inputs` with one tensor as result.
        reference: Function with the same result.
        inputs: Tensors, each of which gets a gradient, or None.
        dtype: Type of the inputs. The reference runs in float32 for every type; for float64 its error is scaled.
        factor: Allowed ratio of the errors.
        draws: How often the error of the reference is measured, each time with inputs that differ by a rounding; the
            largest counts. Where a gradient has few entries, a single error may be small by chance.

    Shape:
        Tensors of any shape; both functions return the same shapes.

    Raises:
        AssertionError: If the result or a gradient has another shape, a NaN or a larger error.

    Example:
        >>> assert_matches_reference(lambda x: x * x, lambda x: x**2, [torch.randn(5)])
    """
    narrow = torch.finfo(dtype).bits == 16
    if narrow:
        # All sides get the values that 16 bits have.
        inputs = [None if tensor is None else tensor.to(dtype).double() for tensor in inputs]
    exact = _differentiate(reference, inputs, torch.float64, dtype)
    errors = [_errors(reference, _rounded(inputs, seed), dtype) for seed in range(draws)]
    computed = _differentiate(kernel, inputs, dtype, dtype)
    rounding = torch.finfo(dtype).eps
    scale = factor if narrow else factor * rounding / torch.finfo(torch.float32).eps
    few = 1 if narrow else 4
    for k, (name, right, ours) in enumerate(zip(_names(inputs), exact, computed, strict=True)):
        if ours.shape != right.shape:
            raise AssertionError(f"{name}: expected {tuple(right.shape)}, got {tuple(ours.shape)}")
        error = ours.double() - right
        rms, largest = (max(norm(each[k]) for each in errors) for norm in (_rms, _max))
        _check(name, "root mean square", _rms(error), scale * rms + few * rounding * _rms(right))
        _check(name, "maximum", _max(error), 2 * scale * largest + 2 * few * rounding * _max(right))


def _errors(reference: Function, inputs: Sequence[Tensor | None], dtype: torch.dtype) -> list[Tensor]:
    """Return the rounding errors of a reference in float32: of its result and of every gradient."""
    exact, rounded = (_differentiate(reference, inputs, wide, dtype) for wide in (torch.float64, torch.float32))
    return [theirs.double() - right for theirs, right in zip(rounded, exact, strict=True)]


def _rounded(inputs: Sequence[Tensor | None], seed: int) -> list[Tensor | None]:
    """Return the inputs, for a seed above 0 changed by at most one rounding in float32."""
    generator = torch.Generator().manual_seed(seed)

    def change(tensor: Tensor) -> Tensor:
        noise = torch.rand(tensor.shape, generator=generator) - 0.5
        return tensor * (1 + torch.finfo(torch.float32).eps * noise.to(tensor.device))

    return [tensor if tensor is None or seed == 0 else change(tensor) for tensor in inputs]


def _check(name: str, norm: str, error: float, allowed: float) -> None:
    # Written so that a NaN fails.
    if not error <= allowed:
        raise AssertionError(f"{name}: expected an error of at most {allowed:.3g} ({norm}), got {error:.3g}")


def _differentiate(
    function: Function, inputs: Sequence[Tensor | None], dtype: torch.dtype, kept: torch.dtype
) -> list[Tensor]:
    """Return the result in a type, and the gradients of its sum with weights; 16 bits of `kept` hold the weights."""
    # `to` keeps the strides, so that a tensor that is not contiguous stays so.
    leaves = [None if tensor is None else tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
    out = function(*leaves)
    weights = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if torch.finfo(kept).bits == 16:
        weights = weights.to(kept)
    grads = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], weights.to(dtype))
    return [out.detach(), *grads]


def _names(inputs: Sequence[Tensor | None]) -> list[str]:
    return ["result", *(f"gradient of input {k}" for k, tensor in enumerate(inputs) if tensor is not None)]


def _rms(tensor: Tensor) -> float:
    return tensor.square().mean().sqrt().item() if tensor.numel() else 0.0


def _max(tensor: Tensor) -> float:
    return tensor.abs().max().item() if tensor.numel() else 0.0
