"""The C++ kernel of dynamic routing: from poses and weight to parents, without stored votes (see README.md)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.grid import attend_grid, squash_parents
from torchcaps.ops._attention_pass.steps import attend_by
from torchcaps.ops._flops import Cost, dynamic_cost
from torchcaps.ops._iterations import ParentSoftmax
from torchcaps.ops._kernel import computes_wide
from torchcaps.ops.conv import Window
from torchcaps.ops.dynamic._dense import dense_kernel
from torchcaps.ops.dynamic.reference import GradMode, check_routing_options
from torchcaps.ops.squash import SquashForm
from torchcaps.ops.votes import check_parent_bias, check_poses_and_weight
from torchcaps.types import Capsules

# The order is that of the enumeration `Squash` in csrc/dense/kernels.h.
FORMS = get_args(SquashForm)
# The kernel counts the iterations of its backward pass with 32 bits.
MAX_ITERS = 2**31 - 1


def compute(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    iters: int,
    leaky: bool,
    last_only: bool,
    squash: SquashForm = "standard",
) -> Tensor:
    """Compute the parents [B, J, D] of poses [B, I, P] through weight [I, J, P, D] or [J, P, D].

    Types of 16 bits are computed in float32; the result has the type that poses and weight promote to. There are first
    derivatives only: the gradient of a gradient is an error.

    Args:
        poses: Poses of the children [B, I, P].
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        leaky: Whether a child may couple to no parent.
        last_only: Whether gradients flow through the last iteration only.
        squash: Form of the squash function.

    Returns:
        Poses of the parents [B, J, D].
    """
    result = torch.promote_types(poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    bias = None if bias is None else bias.to(dtype)
    form = FORMS.index(squash)
    out, _ = _dynamic_routing(poses.to(dtype), weight.to(dtype), bias, iters, leaky, last_only, form)  # [B, J, D]
    return out.to(result)


def dense(
    children: Capsules,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    squash: SquashForm = "standard",
    softmax: ParentSoftmax | None = None,
) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `dynamic_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        leaky: Whether a child may couple to no parent.
        grad: Iterations that gradients flow through.
        squash: Form of the squash function.
        softmax: Softmax over the parents, where they are more than those of the weight.

    Returns:
        The parents.
    """
    if softmax is None:
        return _whole(children, weight, bias=bias, iters=iters, leaky=leaky, grad=grad, squash=squash)
    poses, result = children.poses, torch.promote_types(children.poses.dtype, weight.dtype)
    check_parent_bias(bias, weight)
    pass_ = functools.partial(attend_by, softmax, poses, weight, background=0.0 if leaky else None)
    parents = _iterate(pass_, bias, iters, grad, squash)
    return Capsules(parents.poses.to(result), parents.activations.to(result))


_whole = dense_kernel(compute)


@computes_wide
def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    *,
    bias: Tensor | None = None,
    iters: int = 3,
    leaky: bool = False,
    grad: GradMode = "all",
    squash: SquashForm = "standard",
) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through a window; see `dynamic_routing`.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        leaky: Whether a child may couple to no parent.
        grad: Iterations that gradients flow through.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    pass_ = functools.partial(attend_grid, children, weight, window, leaky=leaky)
    return _iterate(pass_, bias, iters, grad, squash)


def _iterate(
    attend: Callable[..., Tensor], bias: Tensor | None, iters: int, grad: GradMode, squash: SquashForm
) -> Capsules:
    """Run one attention pass per iteration.

    The logits of an iteration are the votes times the sum of all earlier parents, so that one vector per parent
    replaces them.

    Args:
        attend: The pass, a function of `key` and `through`.
        bias: Bias of the parents [J, D]; None for none.
        iters: Number of iterations.
        grad: Iterations that gradients flow through.
        squash: Form of the squash function.

    Returns:
        The parents.
    """
    check_routing_options(iters, grad, squash)
    through = grad == "all"
    parents, key = None, None
    for iteration in range(iters):
        # With grad="last" the earlier iterations only look for the coupling.
        with torch.set_grad_enabled(torch.is_grad_enabled() and (through or iteration == iters - 1)):
            if parents is not None:
                key = parents.poses if key is None else key + parents.poses  # [B, ..., J, D]
            parents = squash_parents(attend(key=key, through=through), bias, squash)
    assert parents is not None
    return parents


def _check(
    poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, last_only: bool, squash: int
) -> None:
    check_poses_and_weight(poses, weight)
    check_parent_bias(bias, weight)
    if not 1 <= iters <= MAX_ITERS:
        raise ConfigError(f"iters: expected a count from 1 to {MAX_ITERS:,}, got {iters}")
    if squash not in range(len(FORMS)):
        raise ConfigError(f"squash: expected a number below {len(FORMS)}, got {squash}")


def _shapes(poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, *_: Any) -> list[list[int]]:
    out = [poses.shape[0], weight.shape[-3], weight.shape[-1]]  # [B, J, D]
    return [out, [iters, *out]]  # the presquash of every iteration [R, B, J, D] is saved for the gradients


def _cost(poses: Tensor, weight: Tensor, bias: Tensor | None, iters: int, leaky: bool, last_only: bool, _: int) -> Cost:
    return dynamic_cost(poses, weight, iters, last_only)


def _sizes(args: _native.Arguments) -> list[int]:
    poses, weight, _, iters, leaky, last_only, squash = args
    shared = weight.dim() == 3
    return [*poses.shape[:2], *weight.shape[-3:], iters, int(shared), int(leaky), int(last_only), squash]


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _native.call("dynamic_forward", [*args[:3], *outputs], _sizes(args))


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _native.call("dynamic_backward", [*args[:2], saved[0], grads[0], *outputs], _sizes(args))


_dynamic_routing = _native.native_op(
    "dynamic_routing",
    "(Tensor poses, Tensor weight, Tensor? bias, int iters, bool leaky, bool last_only, int squash)"
    " -> (Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    saved=[1],
)
