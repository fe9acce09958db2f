from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.ops import ROUTINGS, self_attention_routing, trace
from torchcaps.ops.self_attention import self_attention_steps

Rows = list[list[float]]


def attend(votes: list[Rows], prior: Rows) -> tuple[Rows, Rows]:
    """Self-attention over one sample in plain Python, child by child: poses [J, D] and coupling [I, J]."""
    children, parents, size = range(len(votes)), range(len(votes[0])), range(len(votes[0][0]))
    coupling = []
    for i in children:
        row = [
            sum(votes[i][j][d] * votes[k][j][d] for k in children for d in size) / math.sqrt(len(size)) for j in parents
        ]
        coupling.append([math.exp(x) / sum(map(math.exp, row)) for x in row])
    poses = []
    for j in parents:
        s = [sum((coupling[i][j] + prior[i][j]) * votes[i][j][d] for i in children) for d in size]
        poses.append([(1 - math.exp(-math.hypot(*s))) * x / math.hypot(*s) for x in s])
    return poses, coupling


size = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(i=st.integers(1, 6), j=size, d=size, rows=st.sampled_from(["none", "one", "all"]))
def test_equations_in_plain_python(i: int, j: int, d: int, rows: str) -> None:
    votes = torch.randn(2, i, j, d, dtype=torch.float64)
    prior = {"none": None, "one": torch.randn(1, j), "all": torch.randn(i, j)}[rows]
    prior = None if prior is None else prior.double()
    out = self_attention_routing(votes, prior=prior)
    added = torch.zeros(i, j) if prior is None else prior.expand(i, j)
    for sample in range(2):
        poses, coupling = attend(votes[sample].tolist(), added.tolist())
        torch.testing.assert_close(out.poses[sample], torch.tensor(poses, dtype=torch.float64))
        torch.testing.assert_close(out.coupling[sample], torch.tensor(coupling, dtype=torch.float64))
        lengths = [math.hypot(*pose) for pose in poses]
        torch.testing.assert_close(out.activations[sample], torch.tensor(lengths, dtype=torch.float64))


def test_one_pass_with_prior_beside_coupling() -> None:
    votes = torch.randn(2, 6, 3, 4)
    kept = trace("self_attention", votes, prior=torch.randn(6, 3))
    assert kept.iters == 1
    torch.testing.assert_close(kept.coupling[0], kept.logits[0].softmax(-1))
    assert not torch.allclose(kept.poses[0], self_attention_routing(votes).poses)


def test_gradient_reaches_votes_and_prior() -> None:
    votes = torch.randn(2, 4, 3, 2, dtype=torch.float64, requires_grad=True)
    prior = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, p: tuple(self_attention_routing(v, prior=p)), (votes, prior))


def test_registered() -> None:
    assert ROUTINGS["self_attention"].steps is self_attention_steps


def test_errors_name_the_argument() -> None:
    votes = torch.zeros(2, 4, 3, 5)
    with raises_about(ShapeError, "votes", "(4, 3, 5) (3 axes)"):
        self_attention_routing(votes[0])
    with raises_about(ShapeError, "prior", "(3, 3)"):
        self_attention_routing(votes, prior=torch.zeros(3, 3))
