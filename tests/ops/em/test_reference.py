"""EM routing against its laws, the paper's equations, and scikit-learn's Gaussian mixture."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops.em import em_routing


def sample(
    batch: int = 2, children: int = 7, parents: int = 3, dim: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    activations = torch.rand(batch, children, generator=generator, dtype=dtype)
    betas = {"beta_u": normal(parents), "beta_a": normal(parents)}
    return normal(batch, children, parents, dim), activations, betas


def test_first_iteration_is_the_m_step():
    votes, activations, betas = sample()
    out = em_routing(votes, activations, **betas, iters=1, inverse_temp=0.7, variance_floor=1e-3)
    batch, children, parents, dim = votes.shape
    for b in range(batch):
        for j in range(parents):
            share = [float(activations[b, i]) / parents for i in range(children)]
            cost = 0.0
            for h in range(dim):
                mean = sum(r * float(votes[b, i, j, h]) for i, r in enumerate(share)) / sum(share)
                variance = sum(r * (float(votes[b, i, j, h]) - mean) ** 2 for i, r in enumerate(share)) / sum(share)
                assert float(out.poses[b, j, h]) == pytest.approx(mean, rel=1e-6)
                cost += (float(betas["beta_u"][j]) + math.log(math.sqrt(variance + 1e-3))) * sum(share)
            activity = 0.7 * (float(betas["beta_a"][j]) - cost)
            assert float(out.activations[b, j]) == pytest.approx(1 / (1 + math.exp(-activity)), rel=1e-6)


def test_e_step_weights_densities_by_activations():
    votes, activations, betas = sample()
    trace = ops.trace("em", votes, activations, **betas, iters=2, inverse_temp=0.7)
    mean, variance = trace.poses[0].unsqueeze(1), trace.extras["variance"][0].unsqueeze(1)
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1).exp()
    weighed = density * trace.activations[0].unsqueeze(1)
    torch.testing.assert_close(trace.coupling[1], weighed / weighed.sum(-1, keepdim=True))


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_iteration_equals_gaussian_mixture_step(covariance):
    # With the same votes for all parents, full activations and a zero inverse temperature, where all are equally
    # active, EM routing is EM on a mixture of equal weights.
    mixture = pytest.importorskip("sklearn.mixture")
    points = sample(children=40)[0][0, :, 0, :]  # [I, D]
    votes = points[None, :, None, :].expand(1, -1, 3, -1)
    start = sample(children=40, seed=1)[0][:1, :, :, 0]
    none = torch.zeros(3, dtype=torch.float64)
    trace = ops.trace(
        "em",
        votes,
        torch.ones(1, 40, dtype=torch.float64),
        start,
        beta_u=none,
        beta_a=none,
        iters=2,
        inverse_temp=0.0,
        covariance=covariance,
        variance_floor=1e-3,
    )
    share = trace.coupling[0, 0] / trace.coupling[0, 0].sum(0)
    mean = share.T @ points
    torch.testing.assert_close(trace.poses[0, 0], mean, rtol=1e-6, atol=1e-7)
    apart = points[:, None] - mean
    scatter = torch.einsum("ij,ijd,ije->jde", share, apart, apart)
    scatter = scatter + 1e-3 * torch.eye(4, dtype=torch.float64)
    precision = scatter.inverse() if covariance == "full" else 1 / scatter.diagonal(dim1=1, dim2=2)
    theirs = mixture.GaussianMixture(
        3,
        covariance_type="full" if covariance == "full" else "diag",
        reg_covar=1e-3,
        max_iter=1,
        weights_init=[1 / 3] * 3,
        means_init=mean.numpy(),
        precisions_init=precision.numpy(),
    ).fit(points.numpy())
    expected = torch.from_numpy(theirs.covariances_)
    if covariance == "full":
        expected = expected.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(trace.poses[1, 0], torch.from_numpy(theirs.means_), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trace.extras["variance"][1, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("iters", [1, 3])
def test_coupling_sums_to_one_over_parents(iters):
    votes, activations, betas = sample()
    coupling = em_routing(votes, activations, **betas, iters=iters).coupling
    torch.testing.assert_close(coupling.sum(-1), torch.ones_like(activations))
    if iters == 1:
        torch.testing.assert_close(coupling, torch.full_like(coupling, 1 / 3))


def test_permutations_of_parents_and_children():
    votes, activations, betas = sample()
    out = em_routing(votes, activations, **betas)
    order = torch.tensor([2, 0, 1])
    turned = em_routing(votes[:, :, order], activations, **{name: beta[order] for name, beta in betas.items()})
    torch.testing.assert_close(turned.poses, out.poses[:, order])
    torch.testing.assert_close(turned.activations, out.activations[:, order])
    mixed = torch.randperm(votes.shape[1], generator=torch.Generator().manual_seed(0))
    again = em_routing(votes[:, mixed], activations[:, mixed], **betas)
    torch.testing.assert_close(again.poses, out.poses)
    torch.testing.assert_close(again.coupling, out.coupling[:, mixed])


def test_samples_are_independent():
    votes, activations, betas = sample(batch=3)
    out = em_routing(votes, activations, **betas)
    for b in range(3):
        alone = em_routing(votes[b : b + 1], activations[b : b + 1], **betas)
        torch.testing.assert_close(alone.poses[0], out.poses[b])
        torch.testing.assert_close(alone.activations[0], out.activations[b])


def test_inactive_child_has_no_vote():
    votes, activations, betas = sample()
    activations[:, 2] = 0
    out = em_routing(votes, activations, **betas)
    votes[:, 2] = 100.0
    moved = em_routing(votes, activations, **betas)
    torch.testing.assert_close(moved.poses, out.poses)
    torch.testing.assert_close(moved.activations, out.activations)
    kept = [0, 1, 3, 4, 5, 6]
    without = em_routing(votes[:, kept], activations[:, kept], **betas)
    torch.testing.assert_close(without.poses, out.poses)


def test_betas_per_parent():
    votes, activations, betas = sample()
    out = em_routing(votes, activations, **betas, iters=1, inverse_temp=1.0)
    for name in betas:
        raised = {**betas, name: betas[name] + torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)}
        changed = em_routing(votes, activations, **raised, iters=1, inverse_temp=1.0).activations != out.activations
        assert changed.tolist() == [[False, True, False]] * 2


def test_agreement_and_temperature_raise_activation():
    votes, activations, betas = sample(parents=2)
    votes[:, :, 0] = votes[:, :1, 0]
    betas.update({name: torch.zeros(2, dtype=torch.float64) for name in betas})
    weak, strong = (em_routing(votes, activations, **betas, inverse_temp=t).activations for t in (0.1, 1.0))
    assert bool((weak[:, 0] > weak[:, 1]).all())
    assert bool((strong[:, 0] > weak[:, 0]).all())


@pytest.mark.parametrize(("dtype", "iters"), [(torch.float32, 1), (torch.float32, 10), (torch.float64, 3)])
@pytest.mark.parametrize(
    "case", ["zero", "equal", "huge", "tiny", "huge and equal", "inactive", "one far away", "one child"]
)
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_values_and_gradients_are_finite(dtype, iters, case, covariance):
    votes, activations, betas = sample(dtype=dtype)
    if case == "zero":
        votes = torch.zeros_like(votes)
    elif case == "equal":
        votes = votes[:, :1, :1].expand_as(votes).clone()
    elif case == "huge":
        votes = 1e12 * votes
    elif case == "tiny":
        votes = 1e-12 * votes
    elif case == "huge and equal":
        votes = 1e12 * votes[:, :1, :1].expand_as(votes).clone()
    elif case == "inactive":
        activations = torch.zeros_like(activations)
    elif case == "one far away":
        votes[:, 0] *= 1e12
        activations[:, 0] = 0
    elif case == "one child":
        votes, activations = votes[:1, :1], activations[:1, :1]
    inputs = [votes, activations, *betas.values()]
    for tensor in inputs:
        tensor.requires_grad_()
    out = em_routing(
        votes,
        activations,
        beta_u=inputs[2],
        beta_a=inputs[3],
        iters=iters,
        inverse_temp="linear",
        covariance=covariance,
    )
    weights = torch.linspace(-1, 1, out.poses.numel(), dtype=dtype).view_as(out.poses)
    ((out.poses * weights).sum() + out.activations[:, 0].sum()).backward()
    for tensor in (*out, *(tensor.grad for tensor in inputs)):
        assert tensor is not None
        assert bool(tensor.isfinite().all())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"covariance": "full"},
        {"momentum": 0.1},
        {"sharpness": [0.25, 2.0, 1.0]},
        {"background": -3.0},
        {"start": "types", "mass_floor": 1e-5},
        {"covariance": "full", "momentum": 0.3, "sharpness": 0.5, "background": 0.0},
    ],
)
def test_gradcheck(options):
    votes, activations, betas = sample(batch=1, children=4, parents=2, dim=3)

    def values(votes, activations, beta_u, beta_a):
        out = em_routing(votes, activations, beta_u=beta_u, beta_a=beta_a, inverse_temp="linear", **options)
        return out.poses, out.activations, out.coupling

    inputs = [tensor.requires_grad_() for tensor in (votes, activations, *betas.values())]
    assert torch.autograd.gradcheck(values, inputs)


def test_full_covariance_of_independent_dimensions():
    votes, activations, betas = sample(dim=1)
    full = em_routing(votes, activations, **betas, covariance="full")
    torch.testing.assert_close(full.poses, em_routing(votes, activations, **betas).poses)


def test_momentum_averages_old_and_new_mean():
    votes, activations, betas = sample()
    plain = ops.trace("em", votes, activations, **betas, iters=1)
    slow = ops.trace("em", votes, activations, **betas, iters=3, momentum=0.1)
    # Before the first iteration the mean is zero.
    torch.testing.assert_close(slow.poses[0], 0.9 * plain.poses[0])
    for later in (1, 2):
        share = slow.coupling[later] * activations.unsqueeze(-1)
        mean = torch.einsum("bij,bijd->bjd", share, votes) / (share.sum(1).unsqueeze(-1) + 1e-7)
        torch.testing.assert_close(slow.poses[later], 0.9 * mean + 0.1 * slow.poses[later - 1])
        squares = torch.einsum("bij,bijd->bjd", share, (votes - slow.poses[later].unsqueeze(1)).square())
        variance = squares / (share.sum(1).unsqueeze(-1) + 1e-7) + 0.1
        torch.testing.assert_close(slow.extras["variance"][later], variance)


def test_trace_of_every_iteration():
    votes, activations, betas = sample()
    trace = ops.trace("em", votes, activations, **betas, iters=3)
    assert trace.poses.shape == (3, 2, 3, 4)
    assert trace.coupling.shape == (3, 2, 7, 3)
    assert trace.activations.shape == (3, 2, 3)
    assert trace.extras["variance"].shape == (3, 2, 3, 4)
    for iters in (1, 2, 3):
        torch.testing.assert_close(trace.poses[iters - 1], em_routing(votes, activations, **betas, iters=iters).poses)


def test_errors_name_the_argument():
    votes, activations, betas = sample()
    with raises_about(ShapeError, "activations", "(2, 6)"):
        em_routing(votes, activations[:, :6], **betas)
    with raises_about(ShapeError, "beta_a", "(2,)"):
        em_routing(votes, activations, beta_u=betas["beta_u"], beta_a=betas["beta_a"][:2])
    with raises_about(ShapeError, "logits", "(2, 7)"):
        em_routing(votes, activations, activations, **betas)
    with raises_about(ConfigError, "covariance", "'round'"):
        em_routing(votes, activations, **betas, covariance="round")  # pyright: ignore[reportArgumentType]
    for floor in (0, float("inf")):
        with raises_about(ConfigError, "variance_floor:", floor):
            em_routing(votes, activations, **betas, variance_floor=floor)
    with raises_about(ConfigError, "momentum", "1"):
        em_routing(votes, activations, **betas, momentum=1)
