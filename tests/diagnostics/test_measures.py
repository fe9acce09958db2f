from __future__ import annotations

import math

import pytest
import torch

from torchcaps.diagnostics.measures import coupling_entropy, logit_change, over_competitors, plane_of
from torchcaps.ops import Window


def entropy_child_by_child(coupling: torch.Tensor, window: Window) -> float:
    """The same by going through the children of one image, position by position."""
    rows, columns = window.positions
    types = coupling.shape[1] // (window.kernel[0] * window.kernel[1])
    shares: dict[tuple[int, int, int], list[float]] = {}
    for position in range(rows * columns):
        top, left = (window.stride * place for place in divmod(position, columns))
        for child in range(coupling.shape[1]):
            place, kind = divmod(child, types)
            down, right = divmod(place, window.kernel[1])
            shares.setdefault((top + down, left + right, kind), []).extend(coupling[position, child].tolist())
    each = [-sum(c * math.log(c) for c in child) / math.log(len(child)) for child in shares.values()]
    return sum(each) / len(each)


@pytest.mark.parametrize("stride", [1, 2])
def test_entropy_over_all_positions(stride):
    window = Window((4, 5), (3, 3), stride)
    rows, columns = window.positions
    torch.manual_seed(0)
    coupling = window.softmax(2 * torch.randn(rows * columns, 9 * 2, 3))
    torch.testing.assert_close(
        float(coupling_entropy(coupling[None], window)), entropy_child_by_child(coupling, window), rtol=1e-5, atol=0
    )


def test_entropy_bounds_in_a_window():
    window = Window((4, 4), (3, 3))
    even = window.softmax(torch.zeros(2 * 4, 9 * 2, 3))
    torch.testing.assert_close(coupling_entropy(even[None], window), torch.ones(1))
    first = torch.zeros(2 * 4, 9 * 2, 3)
    first[..., 0] = 50.0
    # A child in the corner, covered once, is decided; those in the middle are shared by four positions.
    assert 0 < float(coupling_entropy(window.softmax(first)[None], window)) < 0.6
    local = Window((4, 4), (3, 3), competition="local")
    assert float(coupling_entropy(local.softmax(first)[None], local)) < 1e-3


def test_entropy_counts_leak_as_parent():
    even = torch.full((1, 2, 5, 3), 0.25)
    torch.testing.assert_close(coupling_entropy(even), torch.ones(1))


def test_entropy_of_one_parent():
    assert coupling_entropy(torch.ones(2, 1, 4, 1)).isnan().all()
    # In the middle column two positions compete for a child; at both ends there is one.
    window = Window((1, 3), (1, 2))
    torch.testing.assert_close(coupling_entropy(window.softmax(torch.zeros(1 * 2, 2, 1))[None], window), torch.ones(1))


def test_logit_change_ignores_constant_shift():
    torch.manual_seed(0)
    logits = torch.randn(3, 2, 5, 4)
    moved = logits + torch.randn(3, 2, 5, 1)
    torch.testing.assert_close(logit_change(moved), logit_change(logits))
    assert logit_change(logits[:1]).shape == (0,)
    apart = torch.zeros(2, 1, 1, 3)
    apart[1, 0, 0] = torch.tensor([3.0, 0.0, 0.0])
    torch.testing.assert_close(logit_change(apart), torch.tensor([4 / 3]))


def test_logit_change_in_a_window():
    window = Window((1, 3), (1, 2))
    # The logits of the two positions over the child in the middle move apart by 2; per position nothing changes.
    logits = torch.zeros(2, 2, 2, 1)
    logits[1, 0, 1, 0], logits[1, 1, 0, 0] = 1.0, -1.0
    torch.testing.assert_close(logit_change(logits, window), torch.tensor([0.5]))
    local = Window((1, 3), (1, 2), competition="local")
    torch.testing.assert_close(logit_change(logits, local), torch.tensor([0.0]))


def test_sums_per_position():
    window = Window((1, 3), (1, 2))
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert over_competitors(values, window).tolist() == [[[1.0, 5.0], [5.0, 4.0]]]
    assert over_competitors(values, None) is values


def test_vote_plane_axes() -> None:
    votes = torch.zeros(40, 5)
    votes[:, 3] = torch.linspace(-1, 3, 40)
    votes[::2, 1] = 0.5
    plane, kept = plane_of(votes, torch.tensor([0.0, -1, 0, -1, 0]))
    assert kept == pytest.approx(1, abs=1e-5)
    assert float(plane[3, 0]) < -0.9
    assert torch.allclose(plane.T @ plane, torch.eye(2), atol=1e-5)


@pytest.mark.parametrize("votes", [torch.zeros(3, 4), torch.ones(1, 4), torch.rand(6, 1)])
def test_vote_plane_of_few_votes_is_finite(votes: torch.Tensor) -> None:
    plane, kept = plane_of(votes, votes[0])
    assert plane.shape == (votes.shape[1], 2)
    assert bool(plane.isfinite().all())
    assert 0 <= kept <= 1 + 1e-5


def test_positions_compete_per_type() -> None:
    window = Window((4, 4), (3, 3), competition="positions")
    alone = Window((4, 4), (3, 3))
    logits = torch.randn(3, 2 * 4, 9 * 2, 3)
    coupling = torch.stack([window.softmax(one) for one in logits])
    # The mean over types of the value of each type.
    apart = torch.stack([coupling_entropy(coupling[..., j : j + 1], alone) for j in range(3)]).mean(0)
    torch.testing.assert_close(coupling_entropy(coupling, window), apart)
    change = torch.stack([logit_change(logits[..., j : j + 1], alone) for j in range(3)]).mean(0)
    torch.testing.assert_close(logit_change(logits, window), change)


def test_first_coupling_per_position() -> None:
    window = Window((4, 4), (3, 3))
    assert coupling_entropy(torch.full((1, 4, 9, 2), 0.5), window).tolist() == pytest.approx([1.0])
