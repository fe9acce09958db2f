from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import VariationalRouting, make_router
from torchcaps.types import Capsules


def some() -> tuple[torch.Tensor, Capsules]:
    generator = torch.Generator().manual_seed(0)
    votes = torch.randn(2, 6, 3, 16, generator=generator)
    return votes, Capsules(torch.randn(2, 6, 16, generator=generator), torch.rand(2, 6, generator=generator))


@pytest.mark.parametrize(
    "options", [{}, {"iters": 1}, {"covariance": "full"}, {"concentration": 2.0, "strength": 0.5, "scatter": 0.1}]
)
def test_options_reach_ops(options: dict[str, Any]) -> None:
    votes, children = some()
    router = make_router({"name": "variational", **options})
    router.prepare(6, 3, 16, 16)
    betas = dict(router.named_parameters())
    iters, prior = options.get("iters", 3), {name: value for name, value in options.items() if name != "iters"}
    given = {**betas, "iters": iters, "prior": ops.Prior(**prior)}
    expected = ops.variational_routing(votes, children.activations, **given)
    torch.testing.assert_close(router(votes, children), expected)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_parent_without_children_starts_undecided(covariance: Any) -> None:
    votes, children = some()
    router = VariationalRouting(covariance=covariance)
    router.prepare(6, 3, 16, 16)
    out = router(votes, Capsules(children.poses, torch.zeros(2, 6)))
    torch.testing.assert_close(out.activations, torch.full((2, 3), 0.5))


def test_betas_per_parent() -> None:
    router = VariationalRouting()
    router.prepare(6, 3, 16, 16)
    router(*some()).activations.sum().backward()
    for beta in router.parameters():
        assert beta.shape == (3,)
        assert beta.grad is not None
        assert float(beta.grad.abs().min()) > 0


def test_errors_name_the_argument() -> None:
    with raises_about(ConfigError, "routing", "a new one"):
        VariationalRouting()(*some())
    with raises_about(ConfigError, "iters", "0"):
        VariationalRouting(iters=0)
    with raises_about(ConfigError, "scatter", "-1"):
        VariationalRouting(scatter=-1)
    router = VariationalRouting()
    router.prepare(6, 3, 16, 16)
    with raises_about(ConfigError, "routing", "another layer"):
        router.prepare(6, 3, 16, 16)
