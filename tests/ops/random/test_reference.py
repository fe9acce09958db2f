import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import random_routing
from torchcaps.ops.random import random_logits


def test_values_from_fixed_coupling() -> None:
    votes, bias = torch.randn(2, 6, 3, 4), torch.randn(3, 4)
    out = random_routing(votes, bias=bias, seed=5, std=2.0)
    coupling = (2 * random_logits(6, 3, seed=5)).softmax(-1)
    torch.testing.assert_close(out.coupling, coupling.expand(2, 6, 3))
    torch.testing.assert_close(out.poses, ops.squash((coupling[..., None] * votes).sum(1) + bias))


@pytest.mark.parametrize("children", [1, 3, 255, 256, 257, 1000])
def test_coupling_of_child_is_independent_of_count(children: int) -> None:
    assert torch.equal(random_logits(children, 3, seed=2), random_logits(2000, 3, seed=2)[:children])


def test_seed_is_local() -> None:
    before = torch.get_rng_state()
    first, other = random_logits(1000, 10, seed=1), random_logits(1000, 10, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, random_logits(1000, 10, seed=1))
    assert not torch.isclose(first, other).any(-1).all()
    assert abs(float(first.mean())) < 0.05
    assert abs(float(first.std()) - 1) < 0.05
    # Neighbouring blocks are not the same numbers again.
    assert not torch.equal(first[:256], first[256:512])


def test_no_children() -> None:
    assert random_logits(0, 3).shape == (0, 3)


def test_coupling_shared_per_type() -> None:
    single, double = (random_routing(torch.ones(1, 4, 3, 2, dtype=d)).coupling for d in (torch.float32, torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=1e-6)


def test_zero_deviation_is_uniform() -> None:
    votes = torch.randn(2, 6, 3, 4)
    torch.testing.assert_close(random_routing(votes, std=0.0), ops.uniform_routing(votes))


def test_errors_name_the_argument() -> None:
    votes = torch.zeros(2, 6, 3, 4)
    with raises_about(ConfigError, "seed", "-1"):
        random_routing(votes, seed=-1)
    with raises_about(ConfigError, "std", "-1.0"):
        random_routing(votes, std=-1.0)
    with raises_about(ShapeError, "bias", "(3, 4)"):
        random_routing(votes, bias=torch.zeros(3))
