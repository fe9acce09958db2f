"""The kernels of both controls."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import dense
from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, make_router
from torchcaps.ops import random_routing, uniform_routing, vote
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

SIZES = [(3, 7, 5, 3, 6), (1, 1, 1, 1, 1), (5, 33, 3, 4, 17), (2, 1152, 10, 8, 16)]
CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("uniform", uniform_routing, {}),
    ("random", random_routing, {"squash": "half"}),
    ("random", random_routing, {"seed": 3, "std": 2.0}),
]


def fast(algorithm: str, options: dict[str, Any], poses: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return dense(algorithm, poses, weight, backend="recompute", bias=bias, **options).poses


def slow(routing: Any, options: dict[str, Any], poses: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return routing(vote(poses, weight), bias=bias, **options).poses


# Both types at the paper's layer; float32 alone at the other sizes.
TYPED = [*((size, torch.float32) for size in SIZES), (SIZES[-1], torch.float64)]


@pytest.mark.parametrize(("size", "dtype"), TYPED)
@pytest.mark.parametrize(("shared", "with_bias"), [(False, True), (True, False)])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_matches_reference(case: int, size: tuple[int, ...], shared: bool, with_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    algorithm, routing, options = CASES[case]
    b, i, j, p, d = size
    own = () if shared else (i,)
    inputs = [torch.randn(b, i, p), 0.3 * torch.randn(*own, j, p, d), torch.randn(j, d) if with_bias else None]
    assert_matches_reference(
        partial(fast, algorithm, options), partial(slow, routing, options), inputs, dtype=dtype, factor=8
    )


@pytest.mark.parametrize("name", ["uniform", "random"])
def test_layer_reports_backend(name: str) -> None:
    layer = CapsLinear(7, 3, in_dim=4, out_dim=5, routing=make_router(name), bias=True, backend="recompute")
    poses = torch.randn(2, 7, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))


def test_errors_name_the_argument() -> None:
    poses, weight = torch.zeros(2, 6, 4), torch.zeros(5, 3, 4, 6)
    for name in ("uniform", "random"):
        with raises_about(ShapeError, "poses", 5):
            fast(name, {}, poses, weight, None)
        with raises_about(ShapeError, "bias", (3, 6), (6, 3)):
            fast(name, {}, poses[:, :5], weight, torch.zeros(6, 3))
        with raises_about(ConfigError, "squash", "'other'"):
            fast(name, {"squash": "other"}, poses[:, :5], weight, None)
    with raises_about(ConfigError, "std", -1):
        fast("random", {"std": -1}, poses[:, :5], weight, None)
