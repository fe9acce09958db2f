import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsLinear, DynamicRouting, RandomRouting, UniformRouting, make_router
from torchcaps.types import Capsules

CHILDREN = Capsules(torch.rand(2, 6, 4), torch.rand(2, 6))


def test_uniform_equals_one_dynamic_iteration() -> None:
    votes, bias = torch.randn(2, 6, 3, 5), torch.randn(3, 5)
    expected = DynamicRouting(iters=1)(votes, CHILDREN, bias=bias)
    torch.testing.assert_close(UniformRouting()(votes, CHILDREN, bias=bias), expected)


def test_random_options_reach_ops() -> None:
    votes, bias = torch.randn(2, 6, 3, 5), torch.randn(3, 5)
    router = make_router({"name": "random", "seed": 3, "std": 2.0})
    expected = ops.random_routing(votes, bias=bias, seed=3, std=2.0)
    torch.testing.assert_close(router(votes, CHILDREN, bias=bias), expected)
    assert repr(router) == "RandomRouting(seed=3, std=2.0, squash='standard')"


def test_random_routing_with_shared_weights() -> None:
    layer = CapsLinear(None, 3, in_dim=4, out_dim=5, routing=RandomRouting())
    many = layer.trace(Capsules(torch.rand(2, 9, 4), torch.rand(2, 9))).coupling
    torch.testing.assert_close(layer.trace(CHILDREN).coupling, many[:, :, :6])


def test_options_are_checked_when_the_router_is_made() -> None:
    with raises_about(ConfigError, "seed", "a whole number"):
        RandomRouting(seed=-1)
    with raises_about(ConfigError, "'iters'", "UniformRouting"):
        make_router({"name": "uniform", "iters": 3})
