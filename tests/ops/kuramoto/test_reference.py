"""Routing by synchronisation against Kuramoto's equation on the circle, and what synchrony means."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import kuramoto_routing


def sample(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*(shape or (2, 7, 3, 4)), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def angle(vector: Tensor) -> float:
    return math.atan2(float(vector[1]), float(vector[0]))


def test_one_iteration_is_uniform_routing() -> None:
    torch.testing.assert_close(kuramoto_routing(sample(), iters=1), ops.uniform_routing(sample()))
    bias = sample(3, 4, seed=1)
    torch.testing.assert_close(kuramoto_routing(sample(), bias=bias, iters=1), ops.uniform_routing(sample(), bias=bias))


def test_bias_attracts_parent() -> None:
    bias = 1e6 * sample(3, 4, seed=1)
    trace = ops.trace("kuramoto", sample(), bias=bias)
    torch.testing.assert_close(trace.extras["phase"][-1, 0], bias / bias.norm(dim=-1, keepdim=True), rtol=0, atol=1e-4)
    assert float(trace.extras["order"].min()) > 0.999


def test_circle_follows_kuramoto_equation() -> None:
    # d theta / dt = frequency + r sin(psi - theta) for the parent, and coupling sin(theta_j - theta_i) for a child; a
    # step along the tangent of length t turns by atan(t). With no gain the coupling stays at one over the parents.
    votes, step, frequency = sample(1, 5, 2, 2), 0.3, 0.7
    omega = torch.tensor([[0.0, -frequency / 2], [frequency / 2, 0.0]], dtype=torch.float64).repeat(2, 1, 1)
    trace = ops.trace("kuramoto", votes, omega=omega, iters=2, gain=0.0, step=step)
    for j in range(2):
        children = [angle(votes[0, i, j]) for i in range(5)]
        lengths = [float(votes[0, i, j].norm()) for i in range(5)]
        parent = angle(votes[0, :, j].sum(0))
        assert angle(trace.extras["phase"][0, 0, j]) == pytest.approx(parent)
        children = [theta + math.atan(step * 0.5 * math.sin(parent - theta)) for theta in children]
        mean = sum(n * complex(math.cos(t), math.sin(t)) for n, t in zip(lengths, children, strict=True)) / sum(lengths)
        order, psi = abs(mean), math.atan2(mean.imag, mean.real)
        assert float(trace.extras["order"][1, 0, j]) == pytest.approx(order)
        parent += math.atan(step * (frequency + order * math.sin(psi - parent)))
        assert math.cos(angle(trace.extras["phase"][1, 0, j]) - parent) == pytest.approx(1)
        field = 0.5 * order * sum(lengths)
        assert float(trace.activations[1, 0, j]) == pytest.approx(field**2 / (1 + field**2))


def test_coupling_from_phase_agreement() -> None:
    trace = ops.trace("kuramoto", sample(), iters=3, gain=2.0)
    torch.testing.assert_close(trace.coupling, trace.logits.softmax(-1))
    assert float(trace.logits.abs().max()) <= 2.0 + 1e-9


def test_pose_length_is_activation() -> None:
    trace = ops.trace("kuramoto", sample(), iters=4)
    lengths = trace.extras["phase"].norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    torch.testing.assert_close(trace.poses.norm(dim=-1), trace.activations)


def test_children_synchronise() -> None:
    order = ops.trace("kuramoto", sample(), iters=30).extras["order"]  # [R, B, J]
    assert bool((order >= 0).all() and (order <= 1 + 1e-9).all())
    assert float(order[-1].mean()) > float(order[0].mean()) + 0.2


def test_order_of_equal_phases_is_one() -> None:
    votes = sample()[:, :1].expand(2, 7, 3, 4) * torch.linspace(1, 2, 7, dtype=torch.float64).view(1, 7, 1, 1)
    order = ops.trace("kuramoto", votes).extras["order"]
    torch.testing.assert_close(order, torch.ones_like(order))


def test_child_couples_to_parent_in_phase() -> None:
    votes = sample(1, 9, 2, 8)
    # All votes for the first parent are equal, except the opposite vote of the last child.
    votes[:, :, 0] = votes[:, :1, 0]
    votes[:, -1, 0] *= -1
    coupling = kuramoto_routing(votes, iters=3, step=0.1).coupling[0]
    assert float(coupling[:-1, 0].min()) > 0.5 > float(coupling[-1, 0])


def test_omega_is_antisymmetrised() -> None:
    votes, omega = sample(), sample(3, 4, 4, seed=1)
    other = omega + sample(3, 4, 4, seed=2) + sample(3, 4, 4, seed=2).mT
    turned = kuramoto_routing(votes, omega=omega)
    torch.testing.assert_close(kuramoto_routing(votes, omega=other), turned)
    assert not torch.allclose(turned.poses, kuramoto_routing(votes).poses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 3, 10])
@pytest.mark.parametrize("case", ["zero", "equal", "huge", "tiny", "opposite", "one alone"])
def test_values_and_gradients_are_finite(case: str, iters: int, dtype: torch.dtype) -> None:
    votes = sample(dtype=dtype)
    if case == "zero":
        votes = torch.zeros_like(votes)
    elif case == "equal":
        votes = votes[:, :1, :1].expand_as(votes).clone()
    elif case == "huge":
        votes = 1e6 * votes
    elif case == "tiny":
        votes = 1e-12 * votes
    elif case == "opposite":
        votes = torch.cat([votes, -votes], 1)
    elif case == "one alone":
        votes = votes[:1, :1]
    omega = torch.zeros(3, 4, 4, dtype=dtype, requires_grad=True)
    out = kuramoto_routing(votes.requires_grad_(), omega=omega, iters=iters)
    weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
    ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
    for tensor in (*out, votes.grad, *([] if iters == 1 else [omega.grad])):
        assert tensor is not None
        assert bool(tensor.isfinite().all())


def test_gradcheck() -> None:
    inputs = [tensor.requires_grad_() for tensor in (sample(1, 4, 2, 3), sample(2, 3, seed=2), sample(2, 3, 3, seed=1))]
    assert torch.autograd.gradcheck(
        lambda votes, bias, omega: tuple(kuramoto_routing(votes, bias=bias, omega=omega)), inputs
    )


def test_errors_name_the_argument() -> None:
    with raises_about(ConfigError, "iters", "0"):
        kuramoto_routing(sample(), iters=0)
    with raises_about(ConfigError, "gain", "-1.0"):
        kuramoto_routing(sample(), gain=-1.0)
    with raises_about(ConfigError, "step", "inf"):
        kuramoto_routing(sample(), step=math.inf)
    with raises_about(ShapeError, "bias", "(4,)"):
        kuramoto_routing(sample(), bias=torch.zeros(4))
    with raises_about(ShapeError, "omega", "(4, 4)"):
        kuramoto_routing(sample(), omega=torch.zeros(4, 4))
