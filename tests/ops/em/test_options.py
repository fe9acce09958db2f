"""The options of EM routing: what each of them does to the E-step and to the first coupling."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import Window
from torchcaps.ops.em import em_routing


def sample(
    batch: int = 2, children: int = 7, parents: int = 3, dim: int = 4, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    activations = torch.rand(batch, children, generator=generator, dtype=dtype)
    betas = {"beta_u": normal(parents), "beta_a": normal(parents)}
    return normal(batch, children, parents, dim), activations, betas


SHAPES = [((5, 6), (3, 3), 2), ((4, 4), (3, 3), 1), ((7, 5), (2, 2), 3)]


def test_defaults_change_nothing():
    votes, activations, betas = sample()
    plain = em_routing(votes, activations, **betas)
    same = em_routing(votes, activations, **betas, sharpness=[1, 1, 1], background=None, start="parents", momentum=0)
    assert all(torch.equal(one, other) for one, other in zip(plain, same, strict=True))


@pytest.mark.parametrize("sharpness", [0.0, 0.25, 1.0, 3.0])
def test_sharpness_is_a_power_of_the_density(sharpness):
    votes, activations, betas = sample()
    trace = ops.trace("em", votes, activations, **betas, iters=2, inverse_temp=0.7, sharpness=sharpness)
    mean, variance = trace.poses[0].unsqueeze(1), trace.extras["variance"][0].unsqueeze(1)
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1)
    weighted = (sharpness * density).exp() * trace.activations[0].unsqueeze(1)
    torch.testing.assert_close(trace.coupling[1], weighted / weighted.sum(-1, keepdim=True))


def test_sharpness_per_e_step():
    votes, activations, betas = sample()
    trace = ops.trace("em", votes, activations, **betas, iters=4, sharpness=[0.5, 2.0, 0.0, 9.0])
    logits = trace.logits
    for iteration, factor in enumerate([0.5, 2.0, 0.0]):
        mean, variance = trace.poses[iteration].unsqueeze(1), trace.extras["variance"][iteration].unsqueeze(1)
        density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1)
        expected = trace.activations[iteration].log().unsqueeze(1) + factor * density
        torch.testing.assert_close(logits[iteration + 1], expected)
    other = em_routing(votes, activations, **betas, iters=4, sharpness=[0.5, 2.0, 0.0, 0.0])
    assert torch.equal(other.poses, trace.poses[-1])


def test_lower_sharpness_raises_entropy():
    votes, activations, betas = sample()
    entropies = []
    for sharpness in (1.0, 0.25, 0.05):
        coupling = em_routing(votes, activations, **betas, iters=2, sharpness=sharpness).coupling
        entropies.append(float(torch.special.entr(coupling).sum(-1).mean()))
    assert entropies == sorted(entropies)


@pytest.mark.parametrize("background", [-50.0, -5.0, 0.0, 30.0])
def test_background_adds_a_term_to_the_normaliser(background):
    votes, activations, betas = sample()
    trace = ops.trace("em", votes, activations, **betas, iters=3, background=background)
    torch.testing.assert_close(trace.coupling[0], torch.full_like(trace.coupling[0], 1 / 3))
    for later in (1, 2):
        weighted = trace.logits[later].exp()
        expected = weighted / (weighted.sum(-1, keepdim=True) + math.exp(background))
        torch.testing.assert_close(trace.coupling[later], expected)


def test_background_takes_distant_children():
    votes, activations, betas = sample()
    votes[:, 0] += 30
    activations[:, 0] = 0.01
    kept = em_routing(votes, activations, **betas, iters=2, background=-20.0).coupling.sum(-1)
    assert bool((kept[:, 0] < 0.01).all())
    assert float(kept[:, 1:].mean()) > 0.5


def test_background_is_learned():
    votes, activations, betas = sample(batch=1, children=4, parents=2, dim=3)
    background = torch.tensor(-4.0, dtype=torch.float64, requires_grad=True)

    def values(background):
        out = em_routing(votes, activations, **betas, inverse_temp="linear", background=background)
        return out.poses, out.activations, out.coupling

    assert torch.autograd.gradcheck(values, background)
    window = Window((4, 4), (3, 3), competition="positions")
    logits = torch.randn(4, 9, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, b: window.softmax(x, background=b), (logits, background))


@pytest.mark.parametrize("competition", ["global", "local", "positions"])
def test_coupling_starts_uniform_per_type(competition):
    window = Window((5, 5), (3, 3), 2, competition)
    votes, activations, betas = sample(batch=2 * 4, children=18, parents=3)
    options = {"iters": 2, "softmax": window.softmax}
    trace = ops.trace("em", votes, activations, **betas, start="types", **options)
    torch.testing.assert_close(trace.coupling[0], torch.full_like(trace.coupling[0], 1 / 3))
    torch.testing.assert_close(trace.coupling[1], window.softmax(trace.logits[1]))


@pytest.mark.parametrize(("size", "kernel", "stride"), SHAPES)
@pytest.mark.parametrize("background", [None, -1.0])
def test_positions_compete_per_type(size, kernel, stride, background):
    window = Window(size, kernel, stride, "positions")
    places = kernel[0] * kernel[1]
    count = window.positions[0] * window.positions[1]
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(2 * count, places * 2, 3, generator=generator, dtype=torch.float64)
    coupling = window.softmax(logits, background=background)
    # One type of parents alone is the competition of the paper.
    alone = Window(size, kernel, stride)
    for parent in range(3):
        own = slice(parent, parent + 1)
        expected = alone.softmax(logits[..., own], background=background)
        torch.testing.assert_close(coupling[..., own], expected)


def test_mean_of_parent_without_children():
    votes, _, betas = sample()
    none = torch.zeros(2, 7, dtype=torch.float64)
    out = em_routing(votes, none, **betas, momentum=0.1, sharpness=0.3, background=0.0)
    assert bool((out.poses == 0).all())


EXTREMES = {
    "zero": lambda votes: 0 * votes,
    "equal": lambda votes: votes[:, :1, :1].expand_as(votes).clone(),
    "huge": lambda votes: 1e12 * votes,
    "tiny": lambda votes: 1e-12 * votes,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("case", EXTREMES)
@pytest.mark.parametrize("sharpness", [0.0, 1 / 16, 0.25, 1.0, 1000.0])
@pytest.mark.parametrize("background", [None, -1e4, -20.0, 1e4])
def test_values_and_gradients_are_finite(case, sharpness, background, iters, dtype):
    positions = Window((4, 4), (3, 3), competition="positions").softmax
    dense: tuple[Any, dict[str, Any]] = (sample(dtype=dtype), {})
    conv: tuple[Any, dict[str, Any]] = (sample(batch=2 * 4, children=18, dtype=dtype), {"softmax": positions})
    for (votes, activations, betas), options in (dense, conv):
        own = None if background is None else torch.tensor(background, dtype=dtype, requires_grad=True)
        inputs = [tensor.clone().requires_grad_() for tensor in (EXTREMES[case](votes), activations, *betas.values())]
        named = dict(zip(("votes", "activations", "beta_u", "beta_a"), inputs, strict=True))
        out = em_routing(
            **named, iters=iters, sharpness=sharpness, background=own, momentum=0.1, inverse_temp="linear", **options
        )
        weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
        ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
        if own is not None and iters > 1:
            inputs.append(own)
        for tensor in (*out, *(tensor.grad for tensor in inputs)):
            assert tensor is not None
            assert bool(tensor.isfinite().all())


def test_errors_name_the_argument():
    votes, activations, betas = sample()
    for bad in (-1.0, float("nan"), 1e6, [1.0, 1.0], "sharp", True, None):
        with raises_about(ConfigError, "sharpness"):
            em_routing(votes, activations, **betas, sharpness=bad)  # pyright: ignore[reportArgumentType]
    for bad in (float("inf"), float("nan")):
        with raises_about(ConfigError, "background", bad):
            em_routing(votes, activations, **betas, background=bad)
    with raises_about(ShapeError, "background", "(3,)"):
        em_routing(votes, activations, **betas, background=torch.zeros(3))
    with raises_about(ConfigError, "start", "'random'"):
        em_routing(votes, activations, **betas, start="random")  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "start", "'types'", "logits"):
        em_routing(votes, activations, torch.zeros_like(votes[..., 0]), **betas, start="types")
    with raises_about(ConfigError, "mass_floor", 0):
        em_routing(votes, activations, **betas, mass_floor=0)
