"""The C++ kernels of EM routing: votes recomputed and never stored (see README.md)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._flops import Cost
from torchcaps.ops._gaussian import gaussian_cost, gaussian_routing, stack_betas
from torchcaps.ops._grid import check_kernel, dense_grid, window_numbers
from torchcaps.ops._iterations import Background
from torchcaps.ops.conv import Window
from torchcaps.ops.em.reference import MASS_FLOOR, Covariance, Start, check_background, check_em_options
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
from torchcaps.ops.votes import check_activations, check_poses_and_weight
from torchcaps.types import Capsules

SIDE = 4
# Values saved per parent and iteration: mean and variance, mass, half the log-determinant, activity.
_SAVED = 2 * SIDE * SIDE + 3
# Constants that do not differ from iteration to iteration: variance floor, mass floor, momentum.
_SINGLE = 3


def unsupported(
    children: Capsules,
    weight: Tensor,
    *,
    window: Window | None = None,
    covariance: Covariance = "diagonal",
    **params: Any,
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding; None for a dense layer.
        covariance: Form of the covariance.
        **params: Other options of the routing.

    Returns:
        The reason.
    """
    for name in params:
        if name not in _OPTIONS:
            return f"the kernel has no option '{name}'"
    if covariance != "diagonal":
        return "the kernel has a diagonal covariance"
    return None if children.poses.shape[1] else "the kernel has at least one child"


def dense(children: Capsules, weight: Tensor, **options: Any) -> Capsules:
    """Route children [B, I, P] through weight [I, J, P, D] or [J, P, D]; see `em_routing` for the options."""
    check_poses_and_weight(children.poses, weight)
    check_activations(children.activations, children.poses)
    given = _options(**options)
    grid, weight, numbers = dense_grid(children, weight, given.start_types)
    parents = gaussian_routing(
        grid, weight, given.betas, None, numbers, iters=given.iters, model="em", constants=given.constants
    )
    return Capsules(parents.poses[:, 0, 0], parents.activations[:, 0, 0])


def conv(children: Capsules, weight: Tensor, window: Window, **options: Any) -> Capsules:
    """Route a grid of children [B, H, W, I, P] through weight [K*K*I or I, J, p, p], or [..., J, P, D] for vectors.

    Pose matrices of 4x4 have a kernel of their own with the parents in the vector lanes. Types of 16 bits are computed
    in float32. First derivatives only: the gradient of a gradient is an error. See `em_routing` for the options.

    Args:
        children: The children.
        weight: Weight of the votes.
        window: Kernel size, stride and padding.
        **options: Options of `em_routing`.

    Returns:
        The parents.
    """
    given = _options(**options)
    numbers = window_numbers(window, given.start_types)
    if window.pose != "matrix" or weight.shape[-1] != SIDE:
        return gaussian_routing(
            children,
            weight,
            given.betas,
            window.offsets,
            numbers,
            iters=given.iters,
            model="em",
            constants=given.constants,
        )
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    poses, activations, _ = _em_routing(
        children.poses.to(dtype),
        children.activations.to(dtype),
        weight.to(dtype),
        given.betas.to(dtype),
        None if window.offsets is None else window.offsets.to(dtype),
        numbers[:5],
        given.constants,
    )
    return Capsules(poses.to(result), activations.to(result))


class _Options(NamedTuple):
    betas: Tensor  # [2 or 3, J]
    constants: list[float]
    iters: int
    start_types: bool


def _options(
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    iters: int = 3,
    inverse_temp: InverseTemp = "paper",
    covariance: Covariance = "diagonal",
    variance_floor: float = 0.1,
    momentum: float = 0.0,
    sharpness: Sharpness = 1.0,
    background: Background = None,
    start: Start = "parents",
    mass_floor: float = MASS_FLOOR,
) -> _Options:
    """Return the options of `em_routing` as the kernels take them."""
    check_em_options(covariance, variance_floor, momentum, start, mass_floor)
    check_background(background)
    constants = [variance_floor, mass_floor, momentum]
    constants += [*inverse_temps(inverse_temp, iters), *sharpnesses(sharpness, iters)]
    return _Options(_stack_betas(beta_u, beta_a, background), constants, iters, start == "types")


_OPTIONS = frozenset(inspect.signature(_options).parameters)


def _stack_betas(beta_u: Tensor, beta_a: Tensor, background: Background) -> Tensor:
    """Return beta_u, beta_a and, where there is one, the background repeated for every parent: [2 or 3, J]."""
    return stack_betas(beta_u, beta_a, *([] if background is None else [torch.ones_like(beta_a) * background]))


def _iters(constants: list[float]) -> int:
    return (len(constants) - _SINGLE) // 2


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    window: list[int],
    constants: list[float],
) -> None:
    if poses.dim() != 5 or poses.shape[4] != SIDE * SIDE or not poses.shape[3]:
        raise ShapeError(
            f"poses: expected [B, H, W, I, {SIDE * SIDE}] with at least one child type, got {tuple(poses.shape)}"
        )
    _native.check_shape("activations", activations, poses.shape[:4])
    if len(window) != 5 or min(window[:3]) < 1 or window[3] not in (0, 1, 2) or window[4] not in (0, 1):
        raise ConfigError(
            "window: expected kernel height and width, stride, competition from 0 to 2, and 0 or 1 for the start, "
            f"got {window}"
        )
    rows, columns = window[:2]
    check_kernel(poses, (rows, columns))
    check_weight(weight, poses.shape[3], rows * columns)
    _native.check_shape("betas", betas, [3 if betas.shape[:1] == (3,) else 2, weight.shape[1]])
    _native.check_shape("offsets", offsets, [rows * columns, 2])
    if _iters(constants) < 1 or len(constants) != _SINGLE + 2 * _iters(constants):
        raise ConfigError(
            "constants: expected two floors, the momentum, and an inverse temperature and a sharpness per iteration, "
            f"got {constants}"
        )


def check_weight(weight: Tensor, types: int, cells: int) -> None:
    """Raise ShapeError unless a weight has 4x4 matrices for all cells of the kernel, or shared by them.

    Args:
        weight: Weight of the votes.
        types: Number of capsule types of the children.
        cells: Number of cells of the kernel.
    """
    if weight.dim() != 4 or weight.shape[0] not in (types, types * cells) or weight.shape[2:] != (SIDE, SIDE):
        raise ShapeError(
            f"weight: expected [{types * cells}, J, 4, 4] or [{types}, J, 4, 4], got {tuple(weight.shape)}"
        )


def _shapes(
    poses: Tensor, activations: Tensor, weight: Tensor, betas: Tensor, offsets: Tensor | None, *numbers: Any
) -> list[list[int]]:
    """Return the shapes of the parents' poses and activations, and of the state that is saved for the gradients."""
    (height, width, stride, *_), constants = numbers
    rows, columns = (poses.shape[1] - height) // stride + 1, (poses.shape[2] - width) // stride + 1
    batch, parents, lanes = poses.shape[0], weight.shape[1], _native.lanes(poses.dtype)
    padded = (parents + lanes - 1) // lanes * lanes
    grid = [batch, rows, columns, parents]
    return [[*grid, SIDE * SIDE], grid, [batch, _iters(constants), rows * columns, padded, _SAVED]]


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, betas: Tensor, *rest: Any) -> Cost:
    _, window, constants = rest
    return gaussian_cost(poses, weight, [*window, 1], _iters(constants))


def _call(name: str, args: _native.Arguments, saved: Tensor, others: Sequence[Tensor | None]) -> None:
    poses, activations, weight, betas, offsets, window, constants = args
    *kernel, stride, competition, start_types = window
    rows, columns = ((size - side) // stride + 1 for size, side in zip(poses.shape[1:3], kernel, strict=True))
    shared = weight.shape[0] == poses.shape[3]
    sizes = [*poses.shape[:4], rows, columns, *kernel, stride]
    sizes += [weight.shape[1], _iters(constants), int(shared), competition, start_types]
    sizes += [int(betas.shape[0] == 3), saved.numel()]
    inputs = [poses, weight, activations, betas, offsets, poses.new_tensor(constants)]
    _native.call(f"em_{name}", [*inputs, *others], sizes)


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    _call("forward", args, outputs[2], outputs)


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    _call("backward", args, saved[0], [saved[0], *grads[:2], *outputs])


_em_routing = _native.native_op(
    "em_routing",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor betas, Tensor? offsets, int[] window, float[] constants)"
    " -> (Tensor, Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    saved=[2],
    differentiable=4,
    all_gradients=True,
)
