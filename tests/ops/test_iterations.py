from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.ops import ROUTINGS, Routing, dynamic_routing, trace
from torchcaps.ops._iterations import Step, check_iters, last_step, parent_softmax


def test_softmax_over_parents() -> None:
    logits = torch.randn(2, 5, 3, dtype=torch.float64)
    expected = logits.exp() / logits.exp().sum(2, keepdim=True)
    torch.testing.assert_close(parent_softmax(logits), expected)


@pytest.mark.parametrize("background", [0.0, -1.5])
def test_background_adds_a_parent(background: float) -> None:
    logits = torch.randn(2, 5, 3, dtype=torch.float64)
    expected = logits.exp() / (math.exp(background) + logits.exp().sum(2, keepdim=True))
    torch.testing.assert_close(parent_softmax(logits, background=background), expected)
    learned = torch.tensor(background, dtype=torch.float64)
    torch.testing.assert_close(parent_softmax(logits, background=learned), expected)


@pytest.mark.parametrize("background", [None, 0.0])
def test_softmax_survives_large_logits(background: float | None) -> None:
    coupling = parent_softmax(torch.tensor([[[1000.0, 0.0], [-1000.0, -1000.0]]]), background=background)
    assert coupling[0, 0].tolist() == [1, 0]
    assert coupling[0, 1].tolist() == ([0.5, 0.5] if background is None else [0, 0])


def toy_steps(votes: Tensor, /, *, iters: int = 2) -> Iterator[Step]:
    """A routing with an extra tensor in its trace."""
    flat, poses = votes.sum(-1), votes.sum(1)
    for iteration in range(iters):
        heat = torch.full(votes.shape[:1], float(iteration))
        yield Step(flat + iteration, flat, poses, poses.sum(-1), {"heat": heat})


def test_trace_stacks_iterations_and_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROUTINGS, "_items", {"toy": Routing("toy", toy_steps)})
    votes = torch.randn(2, 5, 3, 4)
    kept = trace("toy", votes, iters=4)
    assert kept.algorithm == "toy"
    assert kept.votes is votes
    assert kept.extras["heat"].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    torch.testing.assert_close(kept.logits[3] - kept.logits[0], torch.full((2, 5, 3), 3.0))


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("iters", [1, 2, 5])
def test_trace_of_dynamic_routing(iters: int, leaky: bool) -> None:
    votes, start, bias = torch.randn(2, 6, 3, 4), torch.randn(2, 6, 3), torch.randn(3, 4)
    kept = trace("dynamic", votes, start, bias=bias, iters=iters, leaky=leaky)
    assert kept.iters == iters
    torch.testing.assert_close(kept.logits[0], start)
    torch.testing.assert_close(kept.coupling, parent_softmax(kept.logits, background=0.0 if leaky else None))
    for r in range(iters):
        out = dynamic_routing(votes, start, bias=bias, iters=r + 1, leaky=leaky)
        torch.testing.assert_close((kept.poses[r], kept.activations[r], kept.coupling[r]), tuple(out))


def test_trace_of_an_unknown_routing() -> None:
    with raises_about(UnknownNameError, "'dinamic'", "'dynamic'"):
        trace("dinamic", torch.zeros(1, 2, 3, 4))


def test_last_step_runs_them_all() -> None:
    last = last_step(toy_steps(torch.zeros(1, 2, 3, 4), iters=7))
    assert last.extras["heat"].item() == 6


@pytest.mark.parametrize("iters", [0, -1, 1001, 2**31])
def test_number_of_iterations_is_bounded(iters: int) -> None:
    with raises_about(ConfigError, "iters", "1,000", iters):
        check_iters(iters)
    check_iters(1000)
