from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from raising import raises_about
from torchcaps.errors import ShapeError
from torchcaps.ops import matrix_vote, vote
from torchcaps.ops.votes import dot_votes, sum_votes

size = st.integers(1, 4)


def by_loops(poses: Tensor, weight: Tensor) -> Tensor:
    votes = torch.zeros(*poses.shape[:2], *weight.shape[-3::2], dtype=poses.dtype)
    for b, i, j, d in torch.cartesian_prod(*map(torch.arange, votes.shape)).view(-1, 4).tolist():
        matrix = weight[j] if weight.dim() == 3 else weight[i, j]
        votes[b, i, j, d] = sum(float(poses[b, i, p]) * float(matrix[p, d]) for p in range(poses.shape[2]))
    return votes


@settings(max_examples=25, deadline=None)
@given(b=size, i=size, j=size, p=size, d=size, shared=st.booleans())
def test_votes_against_loops(b: int, i: int, j: int, p: int, d: int, shared: bool) -> None:
    poses = torch.randn(b, i, p, dtype=torch.float64)
    weight = torch.randn(*([] if shared else [i]), j, p, d, dtype=torch.float64)
    torch.testing.assert_close(vote(poses, weight), by_loops(poses, weight))


def test_non_contiguous_inputs() -> None:
    poses, weight = torch.randn(4, 5, 2).transpose(0, 2), torch.randn(6, 4, 3, 5).permute(3, 2, 1, 0)
    torch.testing.assert_close(vote(poses, weight), vote(poses.contiguous(), weight.contiguous()))


def test_shared_weight() -> None:
    poses, weight = torch.randn(2, 5, 3), torch.randn(4, 3, 6)
    torch.testing.assert_close(vote(poses, weight), vote(poses, weight.expand(5, 4, 3, 6)))


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (2, 4, 5)])
def test_gradient(shape: tuple[int, ...]) -> None:
    poses = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(vote, (poses, weight))


@pytest.mark.parametrize(
    ("poses", "weight", "names"),
    [
        ((2, 3), (3, 4, 5, 6), ("poses:", (2, 3))),
        ((2, 3, 5), (4, 5), ("weight:", (4, 5))),
        ((2, 3, 5), (7, 4, 5, 6), ("poses:", 7, (2, 3, 5))),
        ((2, 3, 5), (3, 4, 8, 6), ("poses:", 8, (2, 3, 5))),
        ((2, 3, 5), (4, 8, 6), ("poses:", 8, (2, 3, 5))),
    ],
)
def test_mismatched_shapes(poses: tuple[int, ...], weight: tuple[int, ...], names: tuple[object, ...]) -> None:
    with raises_about(ShapeError, *names):
        vote(torch.zeros(poses), torch.zeros(weight))


def test_matrix_vote_is_pose_times_weight():
    poses, weight = torch.randn(2, 6, 16), torch.randn(3, 5, 4, 4)
    votes = matrix_vote(poses, weight)
    for b, i, j in ((0, 0, 0), (1, 4, 2), (0, 5, 4)):
        expected = poses[b, i].view(4, 4) @ weight[i % 3, j]
        torch.testing.assert_close(votes[b, i, j].view(4, 4), expected)


def test_matrix_vote_errors_name_the_argument():
    weight = torch.ones(3, 5, 4, 4)
    with raises_about(ShapeError, "poses", "(2, 6) (2 axes)"):
        matrix_vote(torch.ones(2, 6), weight)
    with raises_about(ShapeError, "weight", "(3, 5, 4, 3)"):
        matrix_vote(torch.ones(2, 6, 16), weight[..., :3])
    with raises_about(ShapeError, "poses", "(2, 6, 9)"):
        matrix_vote(torch.ones(2, 6, 9), weight)
    with raises_about(ShapeError, "poses", "(2, 5, 16)"):
        matrix_vote(torch.ones(2, 5, 16), weight)


class _AllProducts(torch.nn.Module):
    """Votes of vectors, of vectors with shared weights and of matrices, their sums and dot products."""

    def forward(self, poses: torch.Tensor, weight: torch.Tensor, square: torch.Tensor) -> list[torch.Tensor]:
        votes = [vote(poses, weight), vote(poses, weight[0]), matrix_vote(poses, square)]  # [B, I, J, D]
        sums = [sum_votes(part.mean(dim=-1), part) for part in votes]  # [B, J, D]
        return [*votes, *sums, *(dot_votes(part, total) for part, total in zip(votes, sums, strict=True))]


def test_exported_products_are_those_of_einsum() -> None:
    torch.manual_seed(0)
    module, args = _AllProducts(), (torch.randn(2, 6, 4), torch.randn(6, 5, 4, 7), torch.randn(3, 5, 2, 2))
    program = torch.export.export(module, args, strict=False)
    assert not [node for node in program.graph.nodes if "einsum" in str(node.target)]
    for ours, expected in zip(program.module()(*args), module(*args), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
