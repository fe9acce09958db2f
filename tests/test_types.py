from __future__ import annotations

import dataclasses

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.types import Capsules, Routed, Trace


def test_flatten_by_position() -> None:
    poses = torch.arange(2 * 3 * 4 * 5 * 6).view(2, 3, 4, 5, 6)
    activations = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)
    flat = Capsules(poses, activations).flatten()
    assert flat.poses.shape == (2, 60, 6)
    row, column, kind = 1, 2, 3
    place = (row * 4 + column) * 5 + kind
    assert torch.equal(flat.poses[:, place], poses[:, row, column, kind])
    assert torch.equal(flat.activations[:, place], activations[:, row, column, kind])


def test_flatten_keeps_a_set() -> None:
    capsules = Capsules(torch.zeros(2, 5, 3), torch.zeros(2, 5))
    assert capsules.flatten() is capsules


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3, 4, 5, 6, 7)])
def test_flatten_knows_sets_and_grids_only(shape: tuple[int, ...]) -> None:
    with raises_about(ShapeError, "poses:", shape):
        Capsules(torch.zeros(shape), torch.zeros(shape[:-1])).flatten()


def test_routed_parents_are_capsules() -> None:
    poses, activations, coupling = torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 5, 3)
    capsules = Routed(poses, activations, coupling).capsules
    assert isinstance(capsules, Capsules)
    assert capsules.poses is poses
    assert capsules.activations is activations


def test_trace_length_and_last_step() -> None:
    votes = torch.randn(2, 5, 3, 4)
    logits, coupling = torch.randn(4, 2, 5, 3), torch.randn(4, 2, 5, 3)
    poses, activations = torch.randn(4, 2, 3, 4), torch.randn(4, 2, 3)
    trace = Trace("dynamic", votes, logits, coupling, poses, activations)
    assert trace.iters == 4
    assert trace.extras == {}
    assert torch.equal(trace.routed.poses, poses[3])
    assert torch.equal(trace.routed.activations, activations[3])
    assert torch.equal(trace.routed.coupling, coupling[3])


def test_traces_are_joined() -> None:
    def some(iters: int) -> Trace:
        parts = [torch.randn(iters, 2, *shape) for shape in ((5, 3), (5, 3), (3, 4), (3,), (3, 4))]
        return Trace("em", torch.randn(2, 5, 3, 4), *parts[:4], extras={"variance": parts[4]})

    first, second = some(1), some(2)
    joined = Trace.join([first, second])
    assert (joined.algorithm, joined.iters) == ("em", 3)
    assert joined.votes is second.votes
    for name in ("logits", "coupling", "poses", "activations"):
        assert torch.equal(getattr(joined, name)[:1], getattr(first, name))
        assert torch.equal(getattr(joined, name)[1:], getattr(second, name))
    assert torch.equal(joined.extras["variance"][1:], second.extras["variance"])


def test_trace_is_immutable() -> None:
    some = torch.zeros(1, 1, 1, 1)
    trace = Trace("dynamic", some, some, some, some, some)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.algorithm = "em"  # pyright: ignore[reportAttributeAccessIssue]


def test_repr_is_one_line_of_shapes() -> None:
    votes = torch.randn(2, 6, 3, 4)
    trace = ops.trace("dynamic", votes, iters=3)
    assert repr(trace) == "Trace(dynamic, iters=3, votes [2, 6, 3, 4], poses [3, 2, 3, 4])"
    assert repr(trace.routed) == "Routed(poses [2, 3, 4], activations [2, 3], coupling [2, 6, 3])"
    assert repr(trace.routed.capsules) == "Capsules(poses [2, 3, 4], activations [2, 3])"
