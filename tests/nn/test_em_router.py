from typing import Any

import pytest
import torch

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsConv2d, CapsLinear, EMRouting, make_router
from torchcaps.types import Capsules


def prepared(**options) -> EMRouting:
    router = EMRouting(**options)
    router.prepare(6, 3, 16, 16)
    return router


def some() -> tuple[torch.Tensor, Capsules]:
    generator = torch.Generator().manual_seed(0)
    votes = torch.randn(2, 6, 3, 16, generator=generator)
    return votes, Capsules(torch.randn(2, 6, 16, generator=generator), torch.rand(2, 6, generator=generator))


def test_the_betas_are_learned_per_parent():
    router = prepared()
    assert {name: tuple(beta.shape) for name, beta in router.named_parameters()} == {"beta_u": (3,), "beta_a": (3,)}
    votes, children = some()
    router(votes, children).activations.sum().backward()
    for beta in router.parameters():
        assert beta.grad is not None
        assert float(beta.grad.abs().min()) > 0


def test_without_normalising_it_is_the_routing_of_ops():
    votes, children = some()
    router = prepared(normalise=False, schedule="released", scale=0.25)
    assert router.beta_u is not None
    assert router.beta_a is not None
    temps = [0.25 * 0.01 * (1 - 0.95**n) for n in (1, 2, 3)]
    betas: dict[str, Any] = {"beta_u": router.beta_u, "beta_a": router.beta_a}
    expected = ops.em_routing(votes, children.activations, **betas, inverse_temp=temps)
    torch.testing.assert_close(router(votes, children).activations, expected.activations)


def test_normalised_costs_do_not_grow_with_the_number_of_children():
    votes, children = some()
    router = prepared()
    once = router(votes, children)
    twice = router(
        votes.repeat(1, 2, 1, 1), Capsules(children.poses.repeat(1, 2, 1), children.activations.repeat(1, 2))
    )
    torch.testing.assert_close(twice.activations, once.activations)
    torch.testing.assert_close(twice.poses, once.poses)


def test_the_number_of_iterations_and_the_schedule_matter():
    votes, children = some()
    results = [
        prepared(**options)(votes, children).activations
        for options in ({"iters": 1}, {"iters": 2}, {"schedule": "linear"})
    ]
    assert not torch.allclose(results[0], results[1])
    assert not torch.allclose(results[1], results[2])


def test_it_serves_a_dense_layer_and_is_made_by_name():
    layer = CapsLinear(6, 3, 8, 4, routing=make_router({"name": "em", "iters": 2}))
    assert layer(Capsules(torch.randn(2, 6, 8), torch.rand(2, 6))).poses.shape == (2, 3, 4)
    assert layer.trace(Capsules(torch.randn(2, 6, 8), torch.rand(2, 6))).poses.shape == (2, 2, 3, 4)


def test_errors_name_the_argument():
    votes, children = some()
    with pytest.raises(ConfigError, match="routing: expected a router that a layer has prepared, got a new one"):
        EMRouting()(votes, children)
    with pytest.raises(ConfigError, match="routing: expected a router of the layer's own, got one that serves another"):
        prepared().prepare(6, 3, 16, 16)
    with pytest.raises(ConfigError, match="momentum: expected"):
        EMRouting(momentum=2.0)
    with pytest.raises(ConfigError, match="iters: expected a count of at least 1, got 0"):
        EMRouting(iters=0)
    for scale in (-1.0, 0.0, float("inf")):
        with pytest.raises(ConfigError, match=f"scale: expected a finite number above 0, got {scale}"):
            EMRouting(scale=scale)
    dense = CapsLinear(6, 3, 16, 16, routing=EMRouting(), backend="cpu")
    with pytest.raises(ConfigError, match="expected 'auto' or 'reference' for em routing in a dense layer, got 'cpu'"):
        dense(children)
    grid = Capsules(torch.randn(1, 3, 3, 2, 16), torch.rand(1, 3, 3, 2))
    layer = CapsConv2d(2, 3, routing=EMRouting(momentum=0.1), backend="cpu")
    with pytest.raises(
        ConfigError, match=r"expected 'auto' or 'reference' \(the kernel has a diagonal covariance and no"
    ):
        layer(grid)
    layer = CapsConv2d(2, 3, pose="vector", backend="cpu")
    with pytest.raises(
        ConfigError, match=r"expected 'auto' or 'reference' \(the kernel has 4x4 pose matrices\), got 'cpu'"
    ):
        layer(grid)
