import copy
from typing import Any

import pytest
import torch

from raising import raises_about
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


def test_betas_per_parent():
    router = prepared()
    assert {name: tuple(beta.shape) for name, beta in router.named_parameters()} == {"beta_u": (3,), "beta_a": (3,)}
    votes, children = some()
    router(votes, children).activations.sum().backward()
    for beta in router.parameters():
        assert beta.grad is not None
        assert float(beta.grad.abs().min()) > 0


def test_unnormalised_costs_match_ops():
    votes, children = some()
    router = prepared(normalise=False, schedule="released", scale=0.25)
    assert router.beta_u is not None
    assert router.beta_a is not None
    temps = [0.25 * 0.02 * (1 - 0.95**n) for n in (1, 2, 3)]
    betas: dict[str, Any] = {"beta_u": router.beta_u, "beta_a": router.beta_a}
    expected = ops.em_routing(votes, children.activations, **betas, inverse_temp=temps)
    torch.testing.assert_close(router(votes, children).activations, expected.activations)


def test_normalised_costs_are_independent_of_children():
    votes, children = some()
    router = prepared()
    once = router(votes, children)
    twice = router(
        votes.repeat(1, 2, 1, 1), Capsules(children.poses.repeat(1, 2, 1), children.activations.repeat(1, 2))
    )
    torch.testing.assert_close(twice.activations, once.activations)
    torch.testing.assert_close(twice.poses, once.poses)


def test_iterations_and_schedule_change_results():
    votes, children = some()
    results = [
        prepared(**options)(votes, children).activations
        for options in ({"iters": 1}, {"iters": 2}, {"schedule": "linear"})
    ]
    assert not torch.allclose(results[0], results[1])
    assert not torch.allclose(results[1], results[2])


def test_dense_layer_by_name():
    layer = CapsLinear(6, 3, 8, 4, routing=make_router({"name": "em", "iters": 2}))
    assert layer(Capsules(torch.randn(2, 6, 8), torch.rand(2, 6))).poses.shape == (2, 3, 4)
    assert layer.trace(Capsules(torch.randn(2, 6, 8), torch.rand(2, 6))).poses.shape == (2, 2, 3, 4)


def test_options_reach_ops():
    votes, children = some()
    options: dict[str, Any] = {"sharpness": 0.25, "background": -9.0, "momentum": 0.2, "start": "types"}
    router = prepared(normalise=False, mass_floor=1e-5, **options)
    assert router.beta_u is not None
    assert router.beta_a is not None
    betas: dict[str, Any] = {"beta_u": router.beta_u, "beta_a": router.beta_a}
    expected = ops.em_routing(votes, children.activations, **betas, mass_floor=1e-5, **options)
    for one, other in zip(router(votes, children), expected, strict=True):
        assert torch.equal(one, other)


def test_background_is_learned():
    votes, children = some()
    router = prepared(background=-30.0, learn_background=True)
    assert [name for name, _ in router.named_parameters()] == ["beta_u", "beta_a", "background"]
    router(votes, children).poses.sum().backward()
    assert router.background is not None
    assert router.background.grad is not None
    assert float(router.background.grad) != 0
    assert dict(prepared(background=-30.0).named_parameters()).keys() == {"beta_u", "beta_a"}


@pytest.mark.parametrize(("floor", "beta_u"), [(0.1, 0.0), (0.5, 0.0), (0.01, 0.3)])
def test_beta_a_from_floor_centres_activations(floor, beta_u):
    # Votes that agree, children with the expected activation, and the cost per child of an average parent.
    votes = torch.ones(1, 6, 3, 16)
    children = Capsules(torch.ones(1, 6, 16), torch.full((1, 6), 0.75))
    for iters in (1, 2, 3):
        router = prepared(
            iters=iters, variance_floor=floor, beta_u_init=beta_u, beta_a_init="floor", scale=4.0, schedule="linear"
        )
        torch.testing.assert_close(router(votes, children).activations, torch.full((1, 3), 0.5), rtol=0, atol=1e-3)


def test_reset_parameters_restores_initial_values():
    router = prepared(beta_a_init="floor", beta_u_init=0.5, background=-3.0, learn_background=True)
    expected = {name: value.clone() for name, value in router.state_dict().items()}
    empty = copy.deepcopy(router).to_empty(device="cpu")
    for parameter in empty.parameters():
        parameter.data.fill_(torch.nan)
    empty.reset_parameters()
    for name, value in empty.state_dict().items():
        assert torch.equal(value, expected[name])


def test_router_by_name_takes_lists_and_strings():
    router = make_router(
        {"name": "em", "sharpness": [0.25, 0.5, 1.0], "beta_a_init": "floor", "background": -20, "start": "types"}
    )
    assert isinstance(router, EMRouting)
    assert router.options()["sharpness"] == [0.25, 0.5, 1.0]
    for name, bad in (
        ("sharpness", "sharp"),
        ("beta_a_init", "ceiling"),
        ("background", "grey"),
        ("momentum", "high"),
        ("beta_u_init", "low"),
        ("learn_background", "yes"),
    ):
        with raises_about(ConfigError, name, repr(bad) if name != "background" else bad):
            make_router({"name": "em", name: bad})


def test_impossible_combinations_give_the_reason():
    with raises_about(ConfigError, "beta_a_init", "normalise"):
        EMRouting(normalise=False, beta_a_init="floor")
    with raises_about(ConfigError, "learn_background", "background"):
        EMRouting(learn_background=True)
    with raises_about(ConfigError, "layer", "'dense'"):
        EMRouting.released(layer="dense")  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "sharpness", "2 values", 1):
        EMRouting(iters=2, sharpness=[0.5])


def test_errors_name_the_argument():
    votes, children = some()
    with raises_about(ConfigError, "routing", "a new one"):
        EMRouting()(votes, children)
    with raises_about(ConfigError, "routing", "another layer"):
        prepared().prepare(6, 3, 16, 16)
    with raises_about(ConfigError, "momentum"):
        EMRouting(momentum=2.0)
    with raises_about(ConfigError, "iters", "0"):
        EMRouting(iters=0)
    for scale in (-1.0, 0.0, float("inf")):
        with raises_about(ConfigError, "scale:", scale):
            EMRouting(scale=scale)
    grid = Capsules(torch.randn(1, 3, 3, 2, 16), torch.rand(1, 3, 3, 2))
    layer = CapsConv2d(2, 3, routing=EMRouting(covariance="full"), backend="cpu")
    with raises_about(ConfigError, "backend", "'cpu'", "diagonal covariance"):
        layer(grid)
