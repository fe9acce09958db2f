"""Exchange between the processes of a layer whose parents are divided: children, logits, parents, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

Group = Any
# Newer versions of torch warn of the second name.
ALL_GATHER = ("all_gather_single", "all_gather_into_tensor")
REDUCE_SCATTER = ("reduce_scatter_single", "reduce_scatter_tensor")


def _call(names: tuple[str, str], out: Tensor, given: Tensor, group: Group) -> Tensor:
    function = next(getattr(distributed, name) for name in names if hasattr(distributed, name))
    function(out, given.contiguous(), group=group)
    return out


class GatherSamples(torch.autograd.Function):
    """From the samples of each process, [B, ...], to those of all, [W*B, ...], in all processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return _call(ALL_GATHER, own.new_empty(group.size() * own.shape[0], *own.shape[1:]), own, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        # Each process has the gradient of all samples through its own parents.
        own = grad.new_empty(grad.shape[0] // ctx.group.size(), *grad.shape[1:])
        return _call(REDUCE_SCATTER, own, grad, ctx.group), None


class SwapParents(torch.autograd.Function):
    """From some parents of all samples, [W, B, ...], to all parents of some samples, [W, B, ...]; its own inverse."""

    @staticmethod
    def forward(ctx: Any, parents: Tensor, group: Group) -> Tensor:
        ctx.group = group
        received = torch.empty_like(parents, memory_format=torch.contiguous_format)
        distributed.all_to_all_single(received, parents.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        received = torch.empty_like(grad, memory_format=torch.contiguous_format)
        distributed.all_to_all_single(received, grad.contiguous(), group=ctx.group)
        return received, None


class SharedSoftmax(torch.autograd.Function):
    """Softmax of logits [B, I, J/W] over the parents of all processes, with the logit `none` [B, I] of no parent.

    The processes exchange two numbers per child forwards, the largest logit and the sum, and one backwards.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, none: Tensor | None, group: Group) -> Tensor:
        top = logits.amax(dim=-1)  # [B, I]
        distributed.all_reduce(top, distributed.ReduceOp.MAX, group=group)
        if none is not None:
            top = torch.maximum(top, none)  # [B, I]
        shares = (logits - top.unsqueeze(-1)).exp_()  # [B, I, J/W]
        total = shares.sum(dim=-1)  # [B, I]
        distributed.all_reduce(total, group=group)
        rest = None if none is None else (none - top).exp_()  # [B, I]
        total = total if rest is None else total + rest  # [B, I]
        coupling = shares.div_(total.unsqueeze(-1))  # [B, I, J/W]
        ctx.group = group
        ctx.save_for_backward(coupling, *([] if rest is None else [rest / total]))
        return coupling

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        coupling, *rest = ctx.saved_tensors
        own = (coupling * grad).sum(dim=-1)  # [B, I]
        # The gradient of a background is a sum over processes, as that of all parameters that each of them has.
        of_none = -rest[0] * own if rest and ctx.needs_input_grad[1] else None  # [B, I]
        mean = own.clone() if of_none is not None else own  # [B, I]
        distributed.all_reduce(mean, group=ctx.group)
        return coupling * (grad - mean.unsqueeze(-1)), of_none, None


class MeanGradient(torch.autograd.Function):
    """The same tensor; its gradient is divided by the number of processes, as DDP and FSDP average gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, world: int) -> Tensor:
        ctx.world = world
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad / ctx.world, None


def shared_softmax(logits: Tensor, group: Group, background: float | Tensor | None = None) -> Tensor:
    """Compute the coupling over the parents of all processes; see `ops.parent_softmax`."""
    none = None if background is None else logits.new_ones(logits.shape[:-1]) * background  # [B, I]
    return SharedSoftmax.apply(logits, none, group)  # pyright: ignore[reportReturnType]


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process has, with the mean of its gradient over the processes."""
    # A DTensor, whose import takes a second.
    part: Any = tensor
    return MeanGradient.apply(part.to_local(), part.device_mesh.size()) if hasattr(part, "to_local") else part
