"""Self-routing against the paper's equations in plain Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.ops import self_routing


def sample(shared: bool = False, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    own = () if shared else (6,)
    return {
        "votes": normal(2, 6, 3, 4),
        "activations": torch.rand(2, 6, generator=generator, dtype=dtype),
        "poses": normal(2, 6, 5),
        "route_weight": normal(*own, 3, 5),
        "route_bias": normal(*own, 3),
    }


@pytest.mark.parametrize("shared", [False, True])
def test_equations_in_plain_python(shared: bool) -> None:
    given = sample(shared)
    out = self_routing(**given)
    weight, bias = given["route_weight"].expand(6, 3, 5), given["route_bias"].expand(6, 3)
    for b in range(2):
        a = given["activations"][b].tolist()
        coupling = []
        for i in range(6):
            logits = [float(weight[i, j] @ given["poses"][b, i] + bias[i, j]) for j in range(3)]
            total = sum(map(math.exp, logits))
            coupling.append([math.exp(logit) / total for logit in logits])
        torch.testing.assert_close(out.coupling[b], torch.tensor(coupling, dtype=torch.float64))
        for j in range(3):
            mass = sum(coupling[i][j] * a[i] for i in range(6))
            assert float(out.activations[b, j]) == pytest.approx(mass / sum(a), rel=1e-6)
            for d in range(4):
                pose = sum(coupling[i][j] * a[i] * float(given["votes"][b, i, j, d]) for i in range(6)) / mass
                assert float(out.poses[b, j, d]) == pytest.approx(pose, rel=1e-6)


def test_activations_sum_to_one() -> None:
    torch.testing.assert_close(self_routing(**sample()).activations.sum(-1), torch.ones(2, dtype=torch.float64))


def test_missing_bias_is_zero_bias() -> None:
    given = sample()
    given["route_bias"].zero_()
    expected = self_routing(**given)
    del given["route_bias"]
    torch.testing.assert_close(self_routing(**given), expected)


def test_coupling_is_independent_of_votes() -> None:
    given = sample()
    before = self_routing(**given).coupling
    given["votes"] = given["votes"].flip(0)
    assert torch.equal(self_routing(**given).coupling, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["silent", "nearly silent", "huge", "sure"])
def test_values_and_gradients_are_finite(case: str, dtype: torch.dtype) -> None:
    given = sample(dtype=dtype)
    if case == "silent":
        given["activations"] = torch.zeros_like(given["activations"])
    elif case == "nearly silent":
        given["activations"] = 1e-30 * given["activations"]
    elif case == "huge":
        given["votes"] = 1e6 * given["votes"]
    elif case == "sure":
        # Logits so large that some couplings underflow to zero in this type.
        given["route_weight"] = 1e4 * given["route_weight"]
    inputs = {name: value.requires_grad_() for name, value in given.items()}
    out = self_routing(**inputs)
    weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
    ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
    for tensor in (*out, *(value.grad for value in inputs.values())):
        assert tensor is not None
        assert bool(tensor.isfinite().all())
    if case == "silent":
        assert not out.poses.any()
        assert not out.activations.any()


@pytest.mark.parametrize("shared", [False, True])
def test_gradcheck(shared: bool) -> None:
    given = sample(shared)

    def values(*tensors: Tensor) -> tuple[Tensor, ...]:
        named: dict[str, Any] = dict(zip(given, tensors, strict=True))
        return tuple(self_routing(**named))

    assert torch.autograd.gradcheck(values, [tensor.requires_grad_() for tensor in given.values()])


def test_positions_compete() -> None:
    window = ops.Window(grid=(3, 3), kernel=(2, 2))
    given = sample(shared=True)
    poses, activations = torch.randn(4, 4, 5, dtype=torch.float64), torch.ones(4, 4, dtype=torch.float64)
    given.update(votes=torch.randn(4, 4, 3, 2, dtype=torch.float64), poses=poses, activations=activations)
    coupling = self_routing(**given, softmax=window.softmax).coupling
    # The child in the middle is the last, third, second and first of the four kernels.
    assert float(sum(coupling[n, 3 - n].sum() for n in range(4))) == pytest.approx(1)


def test_errors_name_the_argument() -> None:
    given = sample()
    wrong = {
        "activations": torch.zeros(2, 5),
        "poses": torch.zeros(2, 5, 5),
        "route_bias": torch.zeros(3),
    }
    for name, tensor in wrong.items():
        with raises_about(ShapeError, f"{name}:", tuple(tensor.shape)):
            self_routing(**{**given, name: tensor.double()})
    weights = {
        (6, 3, 4): ("route_weight:", (6, 3, 4)),
        (7, 3, 5): ("route_weight:", 6, (7, 3, 5)),
        (6, 4, 5): ("route_weight:", 3, (6, 4, 5)),
    }
    for shape, names in weights.items():
        changed = {**given, "route_weight": torch.zeros(shape, dtype=torch.float64)}
        del changed["route_bias"]
        with raises_about(ShapeError, *names):
            self_routing(**changed)
