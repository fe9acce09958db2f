"""The lean twins of both controls."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, make_router
from torchcaps.ops import random_routing, uniform_routing, vote
from torchcaps.ops.uniform import lean, random_lean
from torchcaps.testing import assert_matches
from torchcaps.types import Capsules

SIZES = [(3, 7, 5, 3, 6), (1, 1, 1, 1, 1), (5, 33, 3, 4, 17), (2, 1152, 10, 8, 16)]
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (lean.route, uniform_routing, {}),
    (random_lean.route, random_routing, {}),
    (random_lean.route, random_routing, {"seed": 3, "spread": 2.0}),
]


def slow(routing: Any, options: dict[str, Any], poses: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return routing(vote(poses, weight), bias=bias, **options).poses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_it_matches_the_reference(
    case: int, size: tuple[int, ...], shared: bool, with_bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    twin, routing, options = CASES[case]
    b, i, j, p, d = size
    own = () if shared else (i,)
    inputs = [torch.randn(b, i, p), 0.3 * torch.randn(*own, j, p, d), torch.randn(j, d) if with_bias else None]
    assert_matches(partial(twin, **options), partial(slow, routing, options), inputs, dtype=dtype, factor=8)


@pytest.mark.parametrize("name", ["uniform", "random"])
def test_a_layer_takes_it_and_says_so(name: str) -> None:
    layer = CapsLinear(7, 3, in_dim=4, out_dim=5, routing=make_router(name), bias=True, backend="lean")
    poses = torch.randn(2, 7, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))


def test_errors_name_the_argument() -> None:
    poses, weight = torch.zeros(2, 6, 4), torch.zeros(5, 3, 4, 6)
    for twin in (lean, random_lean):
        with pytest.raises(ShapeError, match="poses: expected 5 children"):
            twin.route(poses, weight)
    with pytest.raises(ConfigError, match="spread: expected a finite number of at least 0, got -1"):
        random_lean.route(poses[:, :5], weight, spread=-1)
