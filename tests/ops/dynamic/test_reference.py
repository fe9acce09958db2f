from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import ROUTINGS, dynamic_routing, squash
from torchcaps.ops.dynamic import dynamic_steps

Rows = list[list[float]]


def procedure_1(votes: list[Rows], logits: Rows, bias: Rows, iters: int, leaky: bool) -> tuple[Rows, Rows]:
    """Procedure 1 of the paper for one sample, in plain Python: poses [J, D] and coupling [I, J]."""
    children, parents, size = range(len(votes)), range(len(votes[0])), range(len(votes[0][0]))
    logits = [list(row) for row in logits]
    poses, coupling = [], []
    for _ in range(iters):
        coupling = []
        for row in logits:
            total = sum(map(math.exp, row)) + (1 if leaky else 0)
            coupling.append([math.exp(b) / total for b in row])
        poses = []
        for j in parents:
            s = [sum(coupling[i][j] * votes[i][j][d] for i in children) + bias[j][d] for d in size]
            square = sum(x * x for x in s)
            poses.append([square / (1 + square) * x / math.sqrt(square) for x in s])
        for i in children:
            for j in parents:
                logits[i][j] += sum(votes[i][j][d] * poses[j][d] for d in size)
    return poses, coupling


size = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(
    b=st.integers(1, 2), i=st.integers(1, 6), j=size, d=size, iters=size, leaky=st.booleans(), start=st.booleans(),
    shift=st.booleans(),
)  # fmt: skip
def test_procedure_1_in_plain_python(
    b: int, i: int, j: int, d: int, iters: int, leaky: bool, start: bool, shift: bool
) -> None:
    votes = torch.randn(b, i, j, d, dtype=torch.float64)
    logits = torch.randn(b, i, j, dtype=torch.float64) if start else torch.zeros(b, i, j, dtype=torch.float64)
    bias = torch.randn(j, d, dtype=torch.float64) if shift else torch.zeros(j, d, dtype=torch.float64)
    out = dynamic_routing(
        votes, logits if start else None, bias=bias if shift else None, iters=iters, leaky=leaky
    )  # fmt: skip
    for sample in range(b):
        poses, coupling = procedure_1(votes[sample].tolist(), logits[sample].tolist(), bias.tolist(), iters, leaky)
        torch.testing.assert_close(out.poses[sample], torch.tensor(poses, dtype=torch.float64))
        torch.testing.assert_close(out.coupling[sample], torch.tensor(coupling, dtype=torch.float64))
        lengths = [math.hypot(*pose) for pose in poses]
        torch.testing.assert_close(out.activations[sample], torch.tensor(lengths, dtype=torch.float64))


def test_two_children_by_hand() -> None:
    # Both vote (1, 0) for parent 0, and against each other for parent 1.
    votes = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, -1.0]]]])
    first = dynamic_routing(votes, iters=1)
    assert first.coupling.tolist() == [[[0.5, 0.5], [0.5, 0.5]]]
    assert first.poses.tolist() == [[[0.5, 0.0], [0.0, 0.0]]]
    second = dynamic_routing(votes, iters=2)
    share = math.exp(0.5) / (math.exp(0.5) + 1)
    torch.testing.assert_close(second.coupling[0, 0], torch.tensor([share, 1 - share]))
    torch.testing.assert_close(second.activations[0], torch.tensor([4 * share**2 / (1 + 4 * share**2), 0.0]))


def test_leak_takes_disagreeing_votes() -> None:
    votes = torch.zeros(1, 4, 3, 2)
    out = dynamic_routing(votes, iters=3, leaky=True)
    torch.testing.assert_close(out.coupling, torch.full((1, 4, 3), 0.25))


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("iters", [1, 3])
def test_gradcheck(iters: int, leaky: bool) -> None:
    votes = torch.randn(2, 4, 3, 2, dtype=torch.float64, requires_grad=True)
    logits = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda v, start, b: tuple(dynamic_routing(v, start, bias=b, iters=iters, leaky=leaky)), (votes, logits, bias)
    )
    assert torch.autograd.gradcheck(lambda v: dynamic_routing(v, iters=iters, leaky=leaky).poses, votes)


def last_only(votes: Tensor, prior: Tensor, bias: Tensor, iters: int, leaky: bool) -> Tensor:
    """The last iteration by itself, with the agreements of the earlier ones as constants."""
    with torch.no_grad():
        logits = torch.stack([step.logits for step in dynamic_steps(votes, prior, bias=bias, iters=iters, leaky=leaky)])
    raised = (prior + (logits[-1] - prior).detach()).exp()
    coupling = raised / (raised.sum(-1, keepdim=True) + leaky)
    return squash((coupling.unsqueeze(-1) * votes).sum(1) + bias)


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("iters", [1, 2, 4])
def test_gradient_through_the_last_iteration(iters: int, leaky: bool) -> None:
    inputs = [torch.randn(2, 4, 3, 5), torch.randn(2, 4, 3), torch.randn(3, 5)]
    votes, logits, bias = (tensor.double().requires_grad_() for tensor in inputs)
    out = dynamic_routing(votes, logits, bias=bias, iters=iters, leaky=leaky, grad="last")
    expected = last_only(votes, logits, bias, iters, leaky)
    torch.testing.assert_close(out.poses, expected)
    seed = torch.randn_like(expected)
    got = torch.autograd.grad((out.poses * seed).sum(), (votes, logits, bias))
    torch.testing.assert_close(got, torch.autograd.grad((expected * seed).sum(), (votes, logits, bias)))


def test_gradient_modes_share_values() -> None:
    votes = torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    whole, last = (dynamic_routing(votes, iters=3, grad=grad) for grad in ("all", "last"))
    torch.testing.assert_close(whole, last)
    (through_all,) = torch.autograd.grad(whole.poses.sum(), votes)
    (through_last,) = torch.autograd.grad(last.poses.sum(), votes)
    assert not torch.allclose(through_all, through_last)


def test_inputs_are_not_modified() -> None:
    votes, logits, bias = torch.randn(2, 4, 3, 5), torch.randn(2, 4, 3), torch.randn(3, 5)
    copies = votes.clone(), logits.clone(), bias.clone()
    dynamic_routing(votes, logits, bias=bias)
    assert all(torch.equal(before, after) for before, after in zip(copies, (votes, logits, bias), strict=True))


def test_registered() -> None:
    assert ROUTINGS["dynamic"].steps is dynamic_steps


VOTES = torch.zeros(2, 4, 3, 5)


def test_wrong_shapes() -> None:
    with raises_about(ShapeError, "votes", "(4, 3, 5) (3 axes)"):
        dynamic_routing(VOTES[0])
    with raises_about(ShapeError, "logits", "(4, 3)"):
        dynamic_routing(VOTES, torch.zeros(4, 3))
    with raises_about(ShapeError, "bias", "(5,)"):
        dynamic_routing(VOTES, bias=torch.zeros(5))


@pytest.mark.parametrize("iters", [0, -1])
def test_no_iteration(iters: int) -> None:
    with raises_about(ConfigError, "iters:", iters):
        dynamic_routing(VOTES, iters=iters)


def test_unknown_gradient() -> None:
    with raises_about(ConfigError, "grad", "'first'"):
        dynamic_routing(VOTES, grad="first")  # pyright: ignore[reportArgumentType]
