"""The routing of Heinsen 2022 against the paper's equations in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import heinsen_routing


def sample(dtype: torch.dtype = torch.float64, out_dim: int = 4) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return {
        "votes": normal(2, 6, 3, out_dim),
        "activations": torch.rand(2, 6, generator=generator, dtype=dtype),
        "poses": normal(2, 6, 5),
        "predict": normal(out_dim, 5),
        "predict_gain": normal(3, 5),
        "predict_bias": normal(3, 5),
        "score_bias": normal(3),
        "beta_weight": normal(2, 3, 5),
        "beta_bias": normal(2, 3),
        "bias": normal(3, out_dim),
    }


def layer_norm(vector: list[float]) -> list[float]:
    mean = sum(vector) / len(vector)
    variance = sum((value - mean) ** 2 for value in vector) / len(vector)
    return [(value - mean) / math.sqrt(variance + 1e-5) for value in vector]


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def route_one(given: dict[str, Any], b: int, iters: int) -> tuple[list[list[float]], list[list[float]]]:
    """The parents before normalisation and the credit of sample b, one number at a time."""
    x, v, a = given["poses"][b].tolist(), given["votes"][b].tolist(), given["activations"][b].tolist()
    weights = {name: value.tolist() for name, value in given.items()}
    parents: list[list[float]] = [[0.0] * 4] * 3
    credit: list[list[float]] = [[0.0] * 3 for _ in range(6)]
    for iteration in range(iters):
        expected = []
        for j in range(3):
            normal = layer_norm(parents[j])
            through = [sum(normal[d] * weights["predict"][d][p] for d in range(4)) for p in range(5)]
            gain, offset = weights["predict_gain"][j], weights["predict_bias"][j]
            expected.append([through[p] * gain[p] + offset[p] for p in range(5)])
        for i in range(6):
            scores = [-math.log1p(math.exp(-dot(x[i], expected[j]) - weights["score_bias"][j])) for j in range(3)]
            shares = [1.0] * 3 if iteration == 0 else [math.exp(score) for score in scores]
            for j in range(3):
                used = a[i] * shares[j] / sum(shares)
                use, ignore = (dot(x[i], weights["beta_weight"][k][j]) + weights["beta_bias"][k][j] for k in (0, 1))
                credit[i][j] = use * used - ignore * (a[i] - used)
        parents = [
            [
                sum(credit[i][j] * (v[i][j][d] / math.sqrt(6) + weights["bias"][j][d]) for i in range(6))
                for d in range(4)
            ]
            for j in range(3)
        ]
    return parents, credit


@pytest.mark.parametrize("iters", [1, 2, 3])
def test_equations_in_plain_python(iters: int) -> None:
    given = sample()
    out = heinsen_routing(**given, iters=iters)
    trace = ops.trace("heinsen", **given, iters=iters)
    for b in range(2):
        parents, credit = route_one(given, b, iters)
        torch.testing.assert_close(trace.extras["credit"][-1, b], torch.tensor(credit, dtype=torch.float64))
        for j in range(3):
            torch.testing.assert_close(out.poses[b, j], torch.tensor(layer_norm(parents[j]), dtype=torch.float64))
            length = math.hypot(*parents[j])
            assert float(out.activations[b, j]) == pytest.approx(length**2 / (1 + length**2), rel=1e-6)


def test_single_number_is_not_normalised() -> None:
    assert heinsen_routing(**sample(out_dim=1)).poses.abs().min() > 0


def test_credit_may_be_negative_and_follows_the_activation() -> None:
    given = sample()
    credit = ops.trace("heinsen", **given, iters=1).extras["credit"][0]
    given["activations"] = given["activations"] / 2
    torch.testing.assert_close(ops.trace("heinsen", **given, iters=1).extras["credit"][0], credit / 2)
    assert credit.min() < 0 < credit.max()


@pytest.mark.parametrize("case", ["silent", "huge"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite(case: str, dtype: torch.dtype) -> None:
    given = sample(dtype)
    if case == "silent":
        given["activations"] = torch.zeros_like(given["activations"])
    else:
        given["poses"] = 1e4 * given["poses"]
    inputs = {name: value.requires_grad_() for name, value in given.items()}
    out = heinsen_routing(**inputs)
    weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
    ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
    for tensor in (*out, *(value.grad for value in inputs.values())):
        assert tensor is not None
        assert bool(tensor.isfinite().all())
    if case == "silent":
        assert not out.poses.any()


def test_gradcheck() -> None:
    given = sample()

    def values(*tensors: Tensor) -> tuple[Tensor, ...]:
        named: dict[str, Any] = dict(zip(given, tensors, strict=True))
        return tuple(heinsen_routing(**named))

    assert torch.autograd.gradcheck(values, [tensor.requires_grad_() for tensor in given.values()])


WRONG = {
    "activations": (2, 5),
    "poses": (2, 5, 5),
    "predict": (5, 4),
    "predict_gain": (4, 5),
    "predict_bias": (3, 4),
    "score_bias": (4,),
    "beta_weight": (3, 3, 5),
    "beta_bias": (3, 3),
    "bias": (4, 3),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_argument(name: str) -> None:
    with raises_about(ShapeError, f"{name}:", f"got {WRONG[name]}"):
        heinsen_routing(**{**sample(), name: torch.zeros(WRONG[name], dtype=torch.float64)})


def test_options_out_of_range() -> None:
    with raises_about(ConfigError, "iters:", "got 0"):
        heinsen_routing(**sample(), iters=0)
    with raises_about(ConfigError, "squash:", "round"):
        heinsen_routing(**sample(), squash="round")  # pyright: ignore[reportArgumentType]
