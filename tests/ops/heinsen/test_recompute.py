from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.nn import CapsLinear
from torchcaps.ops import heinsen_routing, vote
from torchcaps.ops.heinsen import recompute
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

NAMES = ("predict", "predict_gain", "predict_bias", "score_bias", "beta_weight", "beta_bias", "bias")


def both(use_recompute: bool, iters: int, poses: Tensor, weight: Tensor, activations: Tensor, *rest: Any) -> Tensor:
    given = {**dict(zip(NAMES, rest, strict=True)), "iters": iters}
    if use_recompute:
        out, presence = recompute.dense(Capsules(poses, activations), weight, **given)
    else:
        out, presence, _ = heinsen_routing(vote(poses, weight), activations, poses, **given)
    return torch.cat([out, presence.unsqueeze(-1)], dim=-1)


def make_inputs(size: tuple[int, ...], *, shared: bool, bias: bool = True) -> list[Tensor | None]:
    torch.manual_seed(0)
    b, i, j, p, d = size
    shapes = [(d, p), (j, p), (j, p), (j,), (2, j, p), (2, j)]
    return [
        torch.randn(b, i, p),
        torch.randn(*(() if shared else (i,)), j, p, d),
        torch.rand(b, i),
        *(torch.randn(shape) for shape in shapes),
        torch.randn(j, d) if bias else None,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(3, 7, 5, 3, 6), (2, 4, 3, 3, 1), (5, 33, 3, 4, 17), (2, 500, 6, 8, 16)])
def test_matches_reference(size: tuple[int, ...], shared: bool, bias: bool, dtype: torch.dtype) -> None:
    inputs = make_inputs(size, shared=shared, bias=bias)
    assert_matches_reference(partial(both, True, 2), partial(both, False, 2), inputs, dtype=dtype, factor=6, draws=8)


@pytest.mark.parametrize("iters", [1, 3])
def test_iterations(iters: int) -> None:
    inputs = [value for value in make_inputs((3, 7, 5, 3, 6), shared=True) if value is not None]
    torch.testing.assert_close(both(True, iters, *inputs), both(False, iters, *inputs), rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):
    """Records the number of entries of the largest tensor that any operation makes, forwards and backwards."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, Tensor):
                self.entries = max(self.entries, value.numel())
        return out


def test_no_tensor_has_the_size_of_the_votes() -> None:
    layer = CapsLinear(None, 6, in_dim=8, out_dim=64, routing="heinsen", bias=True, backend="recompute")
    poses = torch.randn(2, 100, 8, requires_grad=True)
    with Largest() as seen:
        layer(Capsules(poses, torch.rand(2, 100))).poses.square().sum().backward()
    # Betas and coupling are [B, I, J] each, poses [B, I, P]; votes would be [B, I, J, D].
    assert seen.entries <= max(2 * 2 * 100 * 6, 2 * 100 * 8, 6 * 8 * 64)
    with Largest() as reference:
        layer.backend = "reference"
        layer(Capsules(poses, torch.rand(2, 100)))
    assert reference.entries >= 2 * 100 * 6 * 64


def test_shapes_are_checked() -> None:
    poses, _, activations, *rest = make_inputs((2, 6, 3, 4, 5), shared=True)
    assert poses is not None
    assert activations is not None
    with raises_about(ShapeError, "poses", "7 children"):
        both(True, 2, poses, torch.zeros(7, 3, 4, 5), activations, *rest)
    with raises_about(ShapeError, "bias", "(3, 5)", "(3, 6)"):
        both(True, 2, poses, torch.zeros(3, 4, 5), activations, *rest[:-1], torch.zeros(3, 6))
