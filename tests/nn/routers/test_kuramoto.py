import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import KuramotoRouting, make_router
from torchcaps.types import Capsules

CHILDREN = Capsules(torch.rand(2, 6, 4), torch.rand(2, 6))


def test_options_and_frequencies_reach_ops() -> None:
    votes = torch.randn(2, 6, 3, 5)
    router = make_router({"name": "kuramoto", "iters": 4, "gain": 2.0, "step": 0.5})
    router.prepare(6, 3, 4, 5)
    omega = router.get_parameter("omega")
    torch.nn.init.normal_(omega)
    expected = ops.kuramoto_routing(votes, omega=omega, iters=4, gain=2.0, step=0.5)
    torch.testing.assert_close(router(votes, CHILDREN), expected)
    assert router.trace(votes, CHILDREN).extras["order"].shape == (4, 2, 3)


def test_frequencies_start_at_zero_and_learn() -> None:
    votes = torch.randn(2, 6, 3, 5)
    router = KuramotoRouting()
    router.prepare(6, 3, 4, 5)
    out = router(votes, CHILDREN)
    torch.testing.assert_close(out, ops.kuramoto_routing(votes))
    (out.poses * torch.randn(3, 5)).sum().backward()
    grad = router.get_parameter("omega").grad
    assert grad is not None
    assert bool(grad.any())


def test_errors_name_the_argument() -> None:
    with raises_about(ConfigError, "routing", "a new one"):
        KuramotoRouting()(torch.randn(2, 6, 3, 5), CHILDREN)
    with raises_about(ConfigError, "iters", "0"):
        KuramotoRouting(iters=0)
    router = KuramotoRouting()
    router.prepare(6, 3, 4, 5)
    with raises_about(ConfigError, "routing", "another layer"):
        router.prepare(6, 3, 4, 5)
