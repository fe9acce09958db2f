import pytest
import torch

from torchcaps.errors import ShapeError
from torchcaps.ops import matrix_vote


def test_a_vote_is_the_pose_matrix_times_the_weight():
    poses, weight = torch.randn(2, 6, 16), torch.randn(3, 5, 4, 4)
    votes = matrix_vote(poses, weight)
    for b, i, j in ((0, 0, 0), (1, 4, 2), (0, 5, 4)):
        expected = poses[b, i].view(4, 4) @ weight[i % 3, j]
        torch.testing.assert_close(votes[b, i, j].view(4, 4), expected)


def test_errors_name_the_argument():
    weight = torch.ones(3, 5, 4, 4)
    with pytest.raises(ShapeError, match=r"poses: expected \[B, I, P\], got \(2, 6\) \(2 axes\)"):
        matrix_vote(torch.ones(2, 6), weight)
    with pytest.raises(ShapeError, match=r"weight: expected \[I, J, p, p\], got \(3, 5, 4, 3\)"):
        matrix_vote(torch.ones(2, 6, 16), weight[..., :3])
    with pytest.raises(ShapeError, match=r"poses: expected pose size 16, got \(2, 6, 9\)"):
        matrix_vote(torch.ones(2, 6, 9), weight)
    with pytest.raises(ShapeError, match=r"poses: expected a multiple of 3 children, got \(2, 5, 16\)"):
        matrix_vote(torch.ones(2, 5, 16), weight)
