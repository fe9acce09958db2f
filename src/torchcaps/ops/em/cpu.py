"""The C++ kernel of EM routing over a grid: votes recomputed from 4x4 products and never stored (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.ops._iterations import Background
from torchcaps.ops.conv import Competition, Window
from torchcaps.ops.em.reference import MASS_FLOOR, Covariance, Start
from torchcaps.ops.em.schedules import InverseTemp, Sharpness, inverse_temps, sharpnesses
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
    window: Window,
    covariance: Covariance = "diagonal",
    **params: Any,
) -> str | None:
    """Return the reason why the kernel does not compute a case, or None."""
    if covariance != "diagonal":
        return "the kernel has a diagonal covariance"
    if window.pose != "matrix" or weight.shape[-1] != SIDE:
        return "the kernel has 4x4 pose matrices"
    return None


def conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
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
) -> Capsules:
    """Route a grid of children [B, H, W, I, 16] through weight [K*K*I, J, 4, 4] or [I, J, 4, 4]; see `em_routing`.

    Types of 16 bits are computed in float32. First derivatives only: the gradient of a gradient is an error.
    """
    result = torch.promote_types(children.poses.dtype, weight.dtype)
    dtype = _native.compute_dtype(result)
    poses, activations, _ = _em_routing(
        children.poses.to(dtype),
        children.activations.to(dtype),
        weight.to(dtype),
        _stack_betas(beta_u, beta_a, background).to(dtype),
        None if window.offsets is None else window.offsets.to(dtype),
        [*window.kernel, window.stride, get_args(Competition).index(window.competition), int(start == "types")],
        [
            variance_floor,
            mass_floor,
            momentum,
            *inverse_temps(inverse_temp, iters),
            *sharpnesses(sharpness, iters),
        ],
    )
    return Capsules(poses.to(result), activations.to(result))


def _stack_betas(beta_u: Tensor, beta_a: Tensor, background: Background) -> Tensor:
    """Return beta_u, beta_a and, where there is one, the background repeated for every parent: [2 or 3, J]."""
    if background is None:
        return torch.stack([beta_u, beta_a])
    return torch.stack([beta_u, beta_a, torch.ones_like(beta_a) * background])


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
    if poses.dim() != 5 or poses.shape[4] != SIDE * SIDE:
        raise ShapeError(f"poses: expected [B, H, W, I, {SIDE * SIDE}], got {tuple(poses.shape)}")
    _native.check_shape("activations", activations, poses.shape[:4])
    if len(window) != 5 or min(window[:3]) < 1 or window[3] not in (0, 1, 2) or window[4] not in (0, 1):
        raise ConfigError(
            "window: expected kernel height and width, stride, competition from 0 to 2, and 0 or 1 for the start, "
            f"got {window}"
        )
    rows, columns = window[:2]
    if rows > poses.shape[1] or columns > poses.shape[2]:
        raise ShapeError(f"window: expected a kernel within the grid {tuple(poses.shape[1:3])}, got {(rows, columns)}")
    check_weight(weight, poses.shape[3], rows * columns)
    _native.check_shape("betas", betas, [3 if betas.shape[:1] == (3,) else 2, weight.shape[1]])
    _native.check_shape("offsets", offsets, [rows * columns, 2])
    if _iters(constants) < 1 or len(constants) != _SINGLE + 2 * _iters(constants):
        raise ConfigError(
            "constants: expected two floors, the momentum, and an inverse temperature and a sharpness per iteration, "
            f"got {constants}"
        )


def check_weight(weight: Tensor, types: int, cells: int) -> None:
    """Raise ShapeError unless a weight has 4x4 matrices for all cells of the kernel, or shared by them."""
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
    saved=[2],
    differentiable=4,
    all_gradients=True,
)
