import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.ops import uniform_routing


@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_first_dynamic_iteration(with_bias: bool) -> None:
    votes = torch.randn(2, 6, 3, 4)
    bias = torch.randn(3, 4) if with_bias else None
    torch.testing.assert_close(uniform_routing(votes, bias=bias), ops.dynamic_routing(votes, bias=bias, iters=1))


def test_coupling_is_uniform() -> None:
    out = uniform_routing(torch.randn(2, 6, 5, 4))
    torch.testing.assert_close(out.coupling, torch.full((2, 6, 5), 0.2))


def test_coupling_is_uniform_over_positions() -> None:
    window = ops.Window(grid=(3, 3), kernel=(2, 2))
    out = uniform_routing(torch.randn(4, 4, 5, 4), softmax=window.softmax)
    # The child in the middle is seen from all four positions, the one in the corner from one.
    assert out.coupling[0, 3, 0].item() == pytest.approx(1 / 20)
    assert out.coupling[0, 0, 0].item() == pytest.approx(1 / 5)


def test_trace_has_one_iteration() -> None:
    trace = ops.trace("uniform", torch.randn(2, 6, 3, 4))
    assert trace.iters == 1
    assert not trace.logits.any()


def test_errors_name_the_argument() -> None:
    with raises_about(ShapeError, "votes", "(6, 3, 4) (3 axes)"):
        uniform_routing(torch.zeros(6, 3, 4))
    with raises_about(ShapeError, "bias", "(4,)"):
        uniform_routing(torch.zeros(2, 6, 3, 4), bias=torch.zeros(4))
