from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import ROUTINGS, dynamic_routing, kmeans_routing, squash, trace
from torchcaps.ops.kmeans import kmeans_steps

Rows = list[list[float]]


def cluster(votes: list[Rows], iters: int, inverse_temp: float) -> tuple[Rows, Rows]:
    """Soft k-means of one sample in plain Python: poses [J, D] and coupling [I, J]."""
    children, parents, size = range(len(votes)), range(len(votes[0])), range(len(votes[0][0]))
    logits = [[0.0 for _ in parents] for _ in children]
    coupling, totals = [], []
    for _ in range(iters):
        coupling = [[math.exp(x) / sum(map(math.exp, row)) for x in row] for row in logits]
        totals = [[sum(coupling[i][j] * votes[i][j][d] for i in children) for d in size] for j in parents]
        centres = [[x / math.hypot(*total) for x in total] for total in totals]
        logits = [[inverse_temp * sum(votes[i][j][d] * centres[j][d] for d in size) for j in parents] for i in children]
    poses = [[x * math.hypot(*total) / (0.5 + math.hypot(*total) ** 2) for x in total] for total in totals]
    return poses, coupling


size = st.integers(1, 4)


@settings(max_examples=40, deadline=None)
@given(i=st.integers(1, 6), j=size, d=size, iters=size, inverse_temp=st.sampled_from([0.5, 1.0, 3.0]))
def test_equations_in_plain_python(i: int, j: int, d: int, iters: int, inverse_temp: float) -> None:
    votes = torch.randn(2, i, j, d, dtype=torch.float64)
    out = kmeans_routing(votes, iters=iters, inverse_temp=inverse_temp)
    for sample in range(2):
        poses, coupling = cluster(votes[sample].tolist(), iters, inverse_temp)
        torch.testing.assert_close(out.poses[sample], torch.tensor(poses, dtype=torch.float64))
        torch.testing.assert_close(out.coupling[sample], torch.tensor(coupling, dtype=torch.float64))
        lengths = [math.hypot(*pose) for pose in poses]
        torch.testing.assert_close(out.activations[sample], torch.tensor(lengths, dtype=torch.float64))


def test_logits_are_replaced_each_iteration() -> None:
    votes = torch.randn(2, 6, 3, 4)
    kept = trace("kmeans", votes, iters=3)
    for iteration in (1, 2):
        total = torch.einsum("bij,bijd->bjd", kept.coupling[iteration - 1], votes)
        direction = total / total.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(kept.logits[iteration], torch.einsum("bijd,bjd->bij", votes, direction))


def test_low_temperature_equals_kmeans() -> None:
    # Two groups of votes about two axes, the same for both parents; the second parent starts a little off the first.
    group = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    votes = torch.stack([group + torch.tensor([0.1, 0.0]), group], dim=1).unsqueeze(0)  # [1, 4, 2, 2]
    out = kmeans_routing(votes, iters=10, inverse_temp=200.0)
    torch.testing.assert_close(out.coupling[0], torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    torch.testing.assert_close(out.poses[0, 1], squash(torch.tensor([0.0, 2.0]), form="half"))


def test_equal_votes_need_different_starts() -> None:
    group = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
    votes = group.unsqueeze(1).expand(4, 2, 2).unsqueeze(0)  # [1, 4, 2, 2]
    alike = kmeans_routing(votes, iters=10, inverse_temp=200.0)
    torch.testing.assert_close(alike.coupling, torch.full((1, 4, 2), 0.5))
    start = torch.zeros(1, 4, 2)
    start[0, 0, 0] = 1.0
    kept = trace("kmeans", votes, start, iters=10, inverse_temp=200.0)
    torch.testing.assert_close(kept.logits[0], start)
    torch.testing.assert_close(kept.coupling[0], start.softmax(dim=-1))
    torch.testing.assert_close(kept.routed.coupling[0], torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))


def test_differs_from_dynamic_routing() -> None:
    votes = torch.randn(2, 6, 3, 4)
    assert not torch.allclose(kmeans_routing(votes).coupling, dynamic_routing(votes).coupling)
    torch.testing.assert_close(kmeans_routing(votes, iters=1).coupling, dynamic_routing(votes, iters=1).coupling)


def test_gradcheck() -> None:
    votes = torch.randn(2, 4, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: tuple(kmeans_routing(v, inverse_temp=2.0)), votes)


def test_registered() -> None:
    assert ROUTINGS["kmeans"].steps is kmeans_steps


VOTES = torch.zeros(2, 4, 3, 5)


def test_errors_name_the_argument() -> None:
    with raises_about(ShapeError, "votes", "(4, 3, 5) (3 axes)"):
        kmeans_routing(VOTES[0])
    with raises_about(ShapeError, "logits", "(2, 3, 4)"):
        kmeans_routing(VOTES, torch.zeros(2, 3, 4))
    with raises_about(ConfigError, "iters", "0"):
        kmeans_routing(VOTES, iters=0)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with raises_about(ConfigError, "inverse_temp:", wrong):
            kmeans_routing(VOTES, inverse_temp=wrong)
