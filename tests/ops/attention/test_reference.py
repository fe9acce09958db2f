from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import ROUTINGS, attention_routing, squash
from torchcaps.ops.attention import attention_steps

Rows = list[list[float]]


def procedure_1(votes: list[Rows], poses: Rows, gain: list[float], offset: list[float]) -> tuple[Rows, Rows, Rows]:
    """Procedure 1 of the paper for one sample, in plain Python: poses [J, D], coupling [I, J] and sums [J, D]."""
    children, parents, size = range(len(votes)), range(len(votes[0])), range(len(votes[0][0]))
    coupling = []
    for i in children:
        row = [sum(votes[i][j][d] * poses[j][d] for d in size) / math.sqrt(len(size)) for j in parents]
        coupling.append([math.exp(x) / sum(map(math.exp, row)) for x in row])
    totals: Rows = [[sum(coupling[i][j] * votes[i][j][d] for i in children) for d in size] for j in parents]
    found = []
    for total in totals:
        mean = sum(total) / len(total)
        variance = sum((x - mean) ** 2 for x in total) / len(total)
        found.append([(total[d] - mean) / math.sqrt(variance + 1e-5) * gain[d] + offset[d] for d in size])
    return found, coupling, totals


size = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(i=st.integers(1, 6), j=size, d=size, iters=size, start=st.booleans())
def test_procedure_1_in_plain_python(i: int, j: int, d: int, iters: int, start: bool) -> None:
    votes = torch.randn(2, i, j, d, dtype=torch.float64)
    poses = torch.randn(2, j, d, dtype=torch.float64)
    gain, offset = torch.randn(2, d, dtype=torch.float64)
    out = attention_routing(votes, poses if start else None, gain=gain, offset=offset, iters=iters)
    for sample in range(2):
        found = poses[sample].tolist() if start else [[0.0] * d] * j
        coupling, totals = [], []
        for _ in range(iters):
            found, coupling, totals = procedure_1(votes[sample].tolist(), found, gain.tolist(), offset.tolist())
        torch.testing.assert_close(out.poses[sample], torch.tensor(found, dtype=torch.float64))
        torch.testing.assert_close(out.coupling[sample], torch.tensor(coupling, dtype=torch.float64))
        lengths = squash(torch.tensor(totals, dtype=torch.float64)).norm(dim=-1)
        torch.testing.assert_close(out.activations[sample], lengths)


def test_poses_are_layer_normalised() -> None:
    poses = attention_routing(100 * torch.randn(2, 6, 3, 16), iters=1).poses
    torch.testing.assert_close(poses.mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(poses.norm(dim=-1), torch.full((2, 3), 4.0))


def test_gradients_of_all_inputs() -> None:
    inputs = [torch.randn(2, 4, 3, 2), torch.randn(2, 3, 2), torch.randn(2), torch.randn(2)]
    leaves = [tensor.double().requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(
        lambda v, p, g, o: tuple(attention_routing(v, p, gain=g, offset=o, iters=2)), leaves
    )


def test_activation_gradient_of_zero_votes() -> None:
    votes = torch.zeros(1, 4, 3, 2, requires_grad=True)
    out = attention_routing(votes)
    assert out.activations.tolist() == [[0.0, 0.0, 0.0]]
    out.activations.sum().backward()
    assert votes.grad is not None
    assert votes.grad.isfinite().all()


def test_registered() -> None:
    assert ROUTINGS["attention"].steps is attention_steps


VOTES = torch.zeros(2, 4, 3, 5)


def test_errors_name_the_argument() -> None:
    with raises_about(ShapeError, "votes", "(4, 3, 5) (3 axes)"):
        attention_routing(VOTES[0])
    with raises_about(ConfigError, "iters", "0"):
        attention_routing(VOTES, iters=0)
    with raises_about(ShapeError, "parents", "(3, 5)"):
        attention_routing(VOTES, torch.zeros(3, 5))
    with raises_about(ShapeError, "gain", "(3,)"):
        attention_routing(VOTES, gain=torch.zeros(3))
    with raises_about(ShapeError, "offset", "(3, 5)"):
        attention_routing(VOTES, offset=torch.zeros(3, 5))
