"""Routing without stored votes, in plain PyTorch: the reference on one piece of the batch after the other.

The forward pass keeps nothing but its inputs. The backward pass runs the reference of each piece again, differentiates
it and adds the gradients up.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops._flops import Cost, dense_votes, register_flops
from torchcaps.ops._iterations import last_step
from torchcaps.ops._kernel import Kernel
from torchcaps.ops._native import check_present
from torchcaps.ops._options import decode_options, encode_options, unencodable_option
from torchcaps.ops._pieces import Piece, split_batch, votes_bytes, without_autocast
from torchcaps.ops._reference import reference_steps, run_reference
from torchcaps.ops._routing import ROUTINGS, Routing
from torchcaps.ops.conv import Window
from torchcaps.ops.votes import check_layer, vote
from torchcaps.types import Capsules

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# names: of the tensors, separated by spaces; window: grid, kernel and stride, zeros in a dense layer; kinds:
# competition and kind of pose.
_ARGUMENTS = (
    "str routing, Tensor poses, Tensor activations, Tensor weight, Tensor? offsets, Tensor[] tensors, "
    "str names, str options, int[] window, str kinds, int piece_bytes"
)
_FIXED = 3


def unavailable(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why the kernel cannot compute tensors of a device and type, or None where it can."""
    if device.type == "meta":
        return "tensors on meta have no values; use backend='reference'"
    if dtype not in _TYPES:
        return f"it computes floating-point types of 16 to 64 bits, got {dtype}; use backend='reference'"
    return None


def _unsupported(children: Capsules, weight: Tensor, *, window: Window | None = None, **params: Any) -> str | None:
    option = unencodable_option(params)
    return None if option is None else f"the option '{option}' is neither a tensor nor a plain value"


def route_in_pieces(
    children: Capsules,
    weight: Tensor,
    window: Window | None = None,
    *,
    routing: str,
    second_derivatives: bool,
    **params: Any,
) -> Capsules:
    """Route children through a weight with the reference of a routing, one piece of the batch after the other.

    Args:
        children: The lower capsules.
        weight: The matrices of the votes.
        window: The window of a convolutional layer.
        routing: Name of the routing.
        second_derivatives: Whether the gradient of a gradient runs through the reference, with a warning, or is an
            error.
        **params: Options and learned tensors of the routing.

    Shape:
        As in `route` and, with a window, `route_conv`.

    Returns:
        The parents.
    """
    tensors = {key: value for key, value in params.items() if isinstance(value, Tensor)}
    options = {key: value for key, value in params.items() if not isinstance(value, Tensor)}
    offsets = None if window is None else window.offsets
    # Activations that are not read have no gradient, as in the reference.
    read = ROUTINGS[routing].reads_activations or offsets is not None
    poses, activations = _recompute(
        routing,
        children.poses,
        children.activations if read else children.activations.detach(),
        weight,
        offsets,
        list(tensors.values()),
        " ".join(tensors),
        encode_options(options),
        [0] * 5 if window is None else [*window.grid, *window.kernel, window.stride],
        "" if window is None else f"{window.competition} {window.pose}",
        votes_bytes(children.poses.device),
        second_derivatives,
    )
    return Capsules(poses, activations)


class _Task:
    """The arguments of the operator: the routing, its options, and how it splits a batch."""

    def __init__(self, name: str, inputs: Sequence[Any], numbers: Sequence[Any]) -> None:
        self.poses, self.activations, self.weight, offsets, self.tensors = inputs
        names, options, window, kinds, self.piece_bytes = numbers
        check_present(["poses", "activations", "weight"], inputs[:3])
        check_present(["tensors"] * len(self.tensors), self.tensors)
        self.names: list[str] = names.split()
        self.routing: Routing = ROUTINGS[name]
        if len(set(self.names)) != len(self.tensors):
            raise ConfigError(f"names: expected {len(self.tensors)}, one per tensor, got '{names}'")
        self.routing.check_options(dict.fromkeys(self.names))
        self.options = decode_options(self.routing, options)
        _check_devices(self.inputs() if offsets is None else [*self.inputs(), offsets])
        self.window: Window | None = None if not kinds else _window(self.poses, window, kinds, offsets)
        children = Capsules(self.poses, self.activations)
        if self.window is None:
            check_layer(children, self.weight)
        else:
            self.window.check(children, self.weight)
        self.result_dtype = torch.promote_types(self.poses.dtype, self.weight.dtype)
        # 16 bits are computed in 32.
        narrow = self.result_dtype.itemsize < 4
        self.dtype = torch.float32 if narrow else self.result_dtype

    def inputs(self) -> list[Tensor]:
        """Return all tensors that have a gradient."""
        return [self.poses, self.activations, self.weight, *self.tensors]

    def parent_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the parents' poses and activations."""
        grid = [] if self.window is None else self.window.positions
        matrix = self.window is not None and self.window.pose == "matrix"
        shape = (len(self.poses), *grid, self.weight.shape[-3])
        return [(*shape, self.poses.shape[-1] if matrix else self.weight.shape[-1]), shape]

    def empty_parents(self) -> tuple[Tensor, Tensor]:
        """Return poses and activations of the parents without values."""
        poses, activations = (self.poses.new_empty(shape, dtype=self.result_dtype) for shape in self.parent_shapes())
        return poses, activations

    def pieces(self) -> list[Piece]:
        """Return the pieces of the batch."""
        return split_batch(self.poses, self.weight, self.window, self.piece_bytes)

    @property
    def own_matrices(self) -> bool:
        """Whether every child has matrices of its own, a weight [I, J, P, D] that is as large as the votes."""
        return self.window is None and self.weight.dim() == 4

    def prepared_weight(self) -> Tensor:
        """Return the weight in the type of the computation, laid out as the product that computes votes reads it."""
        weight = self.weight.to(self.dtype)
        # [I, J, P, D] in memory as [I, P, J, D]
        return weight.transpose(1, 2).contiguous().transpose(1, 2) if self.own_matrices else weight

    def part(self, piece: Piece, k: int, whole: Tensor) -> Tensor:
        """Return the part of input k that a piece reads, a view; `whole` is the input or its gradient."""
        if k < 2:
            return piece.children(whole)
        if k >= _FIXED and self.names[k - _FIXED] in self.routing.per_sample:
            return piece.samples_of(whole)
        return whole

    def run(self, piece: Piece | None, inputs: Sequence[Tensor], grad_weight: Tensor | None = None) -> Capsules:
        """Run the reference on the parts that a piece reads, or on the whole batch.

        The gradient of matrices of every child is added to `grad_weight`, if it is given, as the votes are
        differentiated: there is no second tensor of its size.
        """
        poses, activations, weight, *tensors = (tensor.to(self.dtype) for tensor in inputs)
        params = dict(zip(self.names, tensors, strict=True))
        window = self.window
        if piece is not None:
            window = piece.window
            per_sample = self.routing.per_sample
            params = {name: piece.flat(part) if name in per_sample else part for name, part in params.items()}
        params = {**self.options, **params}
        children = Capsules(poses, activations)
        with without_autocast(poses.device):
            if grad_weight is None:
                return run_reference(self.routing, children, weight, window, params)
            votes: Tensor = _Vote.apply(poses, weight, grad_weight)  # [B, I, J, D]
            last = last_step(reference_steps(self.routing, votes, children, None, params))
            return Capsules(last.poses, last.activations)


def _window(poses: Tensor, numbers: Sequence[int], kinds: str, offsets: Tensor | None) -> Window:
    """Return the window of an operator's arguments, over the grid of the poses."""
    words = kinds.split()
    rank = len(numbers) // 2
    if len(numbers) != 2 * rank + 1 or not rank or len(words) != 2:
        raise ConfigError(
            f"window: expected grid, kernel and stride, competition and kind of pose, got {list(numbers)} and '{kinds}'"
        )
    grid, kernel = tuple(numbers[:rank]), tuple(numbers[rank:-1])
    if tuple(poses.shape[1:-2]) != grid:
        raise ShapeError(f"poses: expected a grid {grid}, got {tuple(poses.shape)}")
    return Window(grid, kernel, numbers[-1], *words, offsets=offsets)  # pyright: ignore[reportArgumentType]


def _check_devices(tensors: Sequence[Tensor]) -> None:
    """Raise ConfigError if some tensors are on meta and others are not: their results would have no values."""
    first = tensors[0].device
    for tensor in tensors[1:]:
        if tensor.device != first and "meta" in (tensor.device.type, first.type):
            raise ConfigError(f"device: expected all tensors on {first} like poses, got {tensor.device}")


class _Vote(torch.autograd.Function):
    """`vote` with a weight [I, J, P, D], whose gradient is added to a given tensor of the same layout."""

    @staticmethod
    def forward(ctx: Any, poses: Tensor, weight: Tensor, grad_weight: Tensor) -> Tensor:
        ctx.save_for_backward(poses, weight)
        ctx.grad_weight = grad_weight
        return vote(poses, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        poses, weight = ctx.saved_tensors
        grad = grad.transpose(0, 1).flatten(2)  # [I, B, J*D]
        total = ctx.grad_weight.transpose(1, 2).flatten(2)  # [I, P, J*D], a view
        total.baddbmm_(poses.permute(1, 2, 0), grad)
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return torch.bmm(grad, weight.transpose(1, 2).flatten(2).mT).transpose(0, 1), None, None  # [B, I, P]


def _forward(name: str, *args: Any) -> tuple[Tensor, Tensor]:
    *rest, _ = args
    task = _Task(name, rest[:5], rest[5:])
    parents = task.empty_parents()
    inputs = task.inputs()
    inputs[2] = task.prepared_weight()
    for piece in task.pieces():
        found = task.run(piece, [task.part(piece, k, whole) for k, whole in enumerate(inputs)])
        for whole, part in zip(parents, found, strict=True):
            piece.parents(whole).copy_(part)
    return parents


def _fake_forward(name: str, *args: Any) -> tuple[Tensor, Tensor]:
    *rest, _ = args
    return _Task(name, rest[:5], rest[5:]).empty_parents()


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """Record derivatives in the body of an operator, which torch runs below autograd."""
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False), torch.enable_grad():
        yield


def _backward_task(grads: list[Tensor], name: str, *args: Any) -> tuple[_Task, list[bool]]:
    """Return the arguments of the backward operator after a check."""
    *rest, needed = args
    task = _Task(name, rest[:5], rest[5:])
    check_present(["grads"] * len(grads), grads)
    _check_devices([task.poses, *grads])
    given = [tuple(grad.shape) for grad in grads]
    if given != task.parent_shapes():
        raise ShapeError(f"grads: expected {task.parent_shapes()}, got {given}")
    if len(needed) != len(task.inputs()):
        raise ConfigError(f"needed: expected {len(task.inputs())} values, got {len(needed)}")
    return task, needed


def _backward(grads: list[Tensor], name: str, *args: Any) -> list[Tensor]:
    task, needed = _backward_task(grads, name, *args)
    inputs = task.inputs()
    inputs[2] = task.prepared_weight()
    # Of each input that needs one, the gradient in the layout of the prepared weight.
    totals = [
        torch.zeros_like(tensor, dtype=task.dtype) if need else tensor.new_empty(0)
        for tensor, need in zip(inputs, needed, strict=True)
    ]
    grad_weight = totals[2] if task.own_matrices and needed[2] else None
    # The votes are differentiated through the poses even where only the weight needs a gradient.
    wanted = [k for k, need in enumerate(needed) if (need if grad_weight is None else k == 0 or (need and k != 2))]
    for piece in task.pieces():
        with _recording():
            leaves = [task.part(piece, k, whole).detach() for k, whole in enumerate(inputs)]
            for k in wanted:
                leaves[k].requires_grad_()
            parents = task.run(piece, leaves, grad_weight)
            reached = [k for k, part in enumerate(parents) if part.requires_grad]
            found = torch.autograd.grad(
                [parents[k] for k in reached],
                [leaves[k] for k in wanted],
                [piece.parents(grads[k]).to(task.dtype) for k in reached],
                allow_unused=True,
            )
        for k, grad in zip(wanted, found, strict=True):
            if grad is not None and needed[k]:
                task.part(piece, k, totals[k]).add_(grad)
        del leaves, parents, found
    inputs.clear()
    return [
        total.to(tensor.dtype).contiguous() if need else total
        for total, tensor, need in zip(totals, task.inputs(), needed, strict=True)
    ]


def _fake_backward(grads: list[Tensor], name: str, *args: Any) -> list[Tensor]:
    task, needed = _backward_task(grads, name, *args)
    return [tensor.new_empty(tensor.shape if need else 0) for tensor, need in zip(task.inputs(), needed, strict=True)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    name, poses, activations, weight, offsets, tensors, *numbers, second_derivatives = inputs
    ctx.name, ctx.numbers, ctx.second_derivatives = name, numbers, second_derivatives
    ctx.has_offsets = offsets is not None
    ctx.save_for_backward(poses, activations, weight, *([] if offsets is None else [offsets]), *tensors)


def _differentiate(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    poses, activations, weight, *tensors = ctx.saved_tensors
    offsets = tensors.pop(0) if ctx.has_offsets else None
    _, of_poses, of_activations, of_weight, _, of_tensors, *_ = ctx.needs_input_grad
    needed = [of_poses, of_activations, of_weight, *(of_tensors or [])]
    args = (poses, activations, weight, offsets, tensors, *ctx.numbers)
    if torch.is_grad_enabled():
        found = _differentiate_again(ctx.name, args, list(grads), needed, ctx.second_derivatives)
    else:
        found = _recompute_backward(list(grads), ctx.name, *args, needed)
    kept = [grad if need else None for grad, need in zip(found, needed, strict=True)]
    return (None, *kept[:_FIXED], None, kept[_FIXED:], *[None] * (len(ctx.numbers) + 1))


def _differentiate_again(
    name: str, args: tuple[Any, ...], grads: list[Tensor], needed: list[bool], allowed: bool
) -> list[Tensor | None]:
    """Compute gradients that have a gradient themselves: with the reference, whose votes are all stored."""
    if not allowed:
        raise ConfigError(
            "backend: expected 'reference' or 'auto' for the gradient of a gradient, got 'recompute' "
            "(first derivatives only)"
        )
    warnings.warn(
        f"the gradient of a gradient of {name} routing runs through its reference, which stores all votes", stacklevel=2
    )
    task = _Task(name, args[:5], args[5:])
    inputs = task.inputs()
    parents = [part.to(task.result_dtype) for part in task.run(None, inputs)]
    wanted = [tensor for tensor, need in zip(inputs, needed, strict=True) if need]
    found = iter(torch.autograd.grad(parents, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def _cost(inputs: Sequence[Any], numbers: Sequence[Any]) -> Cost:
    poses, _, weight, *_ = inputs
    _, _, window, kinds, *_ = numbers
    if not kinds:
        return Cost(dense_votes(poses, weight), 1, 1)
    over = _window(poses, window, kinds, None)
    inner, out_dim = weight.shape[-2], poses.shape[-1] if over.pose == "matrix" else weight.shape[-1]
    children = len(poses) * math.prod(over.positions) * over.places * poses.shape[-2]
    return Cost(2 * children * weight.shape[-3] * out_dim * inner, 1, 1)


def _flops(name: str, *args: Any) -> int:
    return _cost(args[:5], args[5:]).votes


def _backward_flops(grads: list[Tensor], name: str, *args: Any) -> int:
    needed = args[-1]
    return _cost(args[:5], args[5:]).gradients(needed[0] + needed[2])


_make = functools.partial(torch.library.custom_op, mutates_args=())
_recompute = _make(
    "torchcaps::recompute", _forward, schema=f"({_ARGUMENTS}, bool second_derivatives) -> (Tensor, Tensor)"
)
_recompute_backward = _make(
    "torchcaps::recompute_backward", _backward, schema=f"(Tensor[] grads, {_ARGUMENTS}, bool[] needed) -> Tensor[]"
)
_recompute.register_fake(_fake_forward)
_recompute_backward.register_fake(_fake_backward)
_recompute.register_autograd(_differentiate, setup_context=_setup_context)
register_flops("recompute", _flops)
register_flops("recompute_backward", _backward_flops)


def _kernel(second_derivatives: bool) -> Kernel:
    call = functools.partial(route_in_pieces, second_derivatives=second_derivatives)
    return Kernel("recompute", call, call, unavailable, _unsupported, takes_routing=True, any_rank=True)


# The kernel of every routing that `auto` takes, and the one that is named: it refuses second derivatives.
RECOMPUTE, RECOMPUTE_NAMED = _kernel(True), _kernel(False)
