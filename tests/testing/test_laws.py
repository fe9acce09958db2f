from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import UnknownNameError
from torchcaps.nn import ROUTERS, DynamicRouting, EMRouting, Router, VariationalRouting
from torchcaps.nn.routers import LAWS as NAMES
from torchcaps.testing import laws
from torchcaps.types import Capsules, Routed, Trace

FACTORIES: dict[str, Callable[..., Router]] = {
    **{name: ROUTERS[name] for name in ROUTERS},
    "dynamic, leaky": partial(DynamicRouting, leaky=True),
    "dynamic, last gradient": partial(DynamicRouting, grad="last"),
    "em, full covariance": partial(EMRouting, covariance="full"),
    "em, costs not per child": partial(EMRouting, normalise=False),
    "em, soft": partial(EMRouting, sharpness=0.25, beta_a_init="floor", scale=4.0),
    "em, background": partial(EMRouting, background=-5.0, learn_background=True),
    "em, momentum": partial(EMRouting, momentum=0.3, start="types", mass_floor=1e-5),
    "em, released": EMRouting.released,
    "variational, full covariance": partial(VariationalRouting, covariance="full"),
}
KEPT = [(name, law) for name, make in FACTORIES.items() for law in sorted(make().laws)]
NOT_KEPT = [(name, law) for name, make in FACTORIES.items() for law in sorted(NAMES - make().laws)]
SIZES = {
    "usual": laws.Sizes(),
    "one of each": laws.Sizes(batch=1, children=1, parents=1),
    "many parents": laws.Sizes(batch=2, children=2, parents=9, in_dim=9, out_dim=16),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("router", "law"), KEPT)
def test_routers_keep_declared_laws(router: str, law: str, size: str) -> None:
    laws.LAWS[law](FACTORIES[router], SIZES[size], torch.float64)


@pytest.mark.parametrize(("router", "law"), KEPT)
def test_routers_keep_laws_in_float32(router: str, law: str) -> None:
    laws.LAWS[law](FACTORIES[router], laws.Sizes(), torch.float32)


@pytest.mark.parametrize(("router", "law"), NOT_KEPT)
def test_undeclared_laws_are_broken(router: str, law: str) -> None:
    with pytest.raises(AssertionError, match=f"^{law}: "):
        laws.LAWS[law](FACTORIES[router], laws.Sizes(), torch.float64)


def test_declared_laws_exist() -> None:
    assert set(laws.LAWS) == NAMES
    assert all(make().laws <= NAMES for make in FACTORIES.values())


def test_check_runs_declared_laws() -> None:
    assert laws.check(DynamicRouting) == sorted(NAMES - {"inactive_child_has_no_vote"})
    assert "coupling_sums_to_one" not in laws.check(partial(DynamicRouting, leaky=True))


def test_check_rejects_unknown_law() -> None:
    class Lawless(DynamicRouting):
        laws = frozenset({"coupling_sums_to_two"})

    with raises_about(UnknownNameError, "'coupling_sums_to_two'", "'coupling_sums_to_one'"):
        laws.check(Lawless)


def test_laws_keep_random_state() -> None:
    before = torch.get_rng_state()
    laws.check(DynamicRouting)
    assert torch.equal(torch.get_rng_state(), before)


class Broken(Router):
    """Dynamic routing written out, with one fault in one place for each subclass."""

    algorithm = "broken"
    takes_bias = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]
    laws = DynamicRouting.laws

    def __init__(self, iters: int = 3) -> None:
        super().__init__()
        self.iters = iters

    def route(
        self,
        children: Capsules,
        weight: Tensor,
        *,
        bias: Tensor | None = None,
        mask: Tensor | None = None,
        **_: Any,
    ) -> Capsules:
        children = ops.mask_children(children, mask)
        out = self(ops.vote(children.poses, weight), children, bias=bias).capsules
        if mask is None:
            return out
        empty = ~mask.any(dim=1)
        return Capsules(out.poses.masked_fill(empty[:, None, None], 0), out.activations.masked_fill(empty[:, None], 0))

    def softmax(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)

    def squash(self, presquash: Tensor) -> Tensor:
        return ops.squash(presquash)

    def update(self, logits: Tensor, agreement: Tensor) -> Tensor:
        return logits + agreement

    def start(self, votes: Tensor) -> Tensor:
        return votes.new_zeros(votes.shape[:3])

    def see(self, votes: Tensor, children: Capsules) -> Tensor:
        return votes

    def lengths(self, poses: Tensor) -> Tensor:
        return torch.linalg.vector_norm(poses, dim=-1)

    def steps(self, votes: Tensor, children: Capsules, bias: Tensor | None, iters: int) -> list[tuple[Tensor, Routed]]:
        votes, logits, steps = self.see(votes, children), self.start(votes), []
        for _ in range(iters):
            coupling = self.softmax(logits)
            poses = self.squash((coupling.unsqueeze(-1) * votes).sum(1) + (0 if bias is None else bias))
            steps.append((logits, Routed(poses, self.lengths(poses), coupling)))
            logits = self.update(logits, (votes * poses.unsqueeze(1)).sum(-1))
        return steps

    def forward(self, votes: Tensor, children: Capsules, *, bias: Tensor | None = None, **_: Any) -> Routed:
        return self.steps(votes, children, bias, self.iters)[-1][1]

    def trace(self, votes: Tensor, children: Capsules, *, bias: Tensor | None = None, **_: Any) -> Trace:
        steps = self.steps(votes, children, bias, self.iters)
        poses, activations, coupling = (torch.stack(part) for part in zip(*(out for _, out in steps), strict=True))
        return Trace("broken", votes, torch.stack([logits for logits, _ in steps]), coupling, poses, activations)


class ChildSoftmax(Broken):
    def softmax(self, logits: Tensor) -> Tensor:
        return logits.softmax(1)


class HalfSoftmax(Broken):
    def softmax(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1) / 2


class DoubleSoftmax(Broken):
    def softmax(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1) * 2


class NegativeCoupling(Broken):
    def softmax(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1) - 0.5


class BatchLogits(Broken):
    def update(self, logits: Tensor, agreement: Tensor) -> Tensor:
        return logits + agreement.mean(0, keepdim=True)


class SquashOverParents(Broken):
    def squash(self, presquash: Tensor) -> Tensor:
        return ops.squash(presquash, dim=1)


class SquashOverBatch(Broken):
    def squash(self, presquash: Tensor) -> Tensor:
        return ops.squash(presquash, dim=0)


class NoSquash(Broken):
    def squash(self, presquash: Tensor) -> Tensor:
        return presquash


class DivideByLength(Broken):
    def squash(self, presquash: Tensor) -> Tensor:
        square = presquash.square().sum(-1, keepdim=True)
        return square / (1 + square) * presquash / square.sqrt()


class RootOfSquares(Broken):
    """Values are right; the gradient of the root at zero is infinite times zero."""

    def squash(self, presquash: Tensor) -> Tensor:
        square = presquash.square().sum(-1, keepdim=True)
        return presquash * square.sqrt() / (1 + square)


class IgnoresIters(Broken):
    def __init__(self, iters: int = 3) -> None:
        super().__init__(3)


class NeverRoutes(Broken):
    def update(self, logits: Tensor, agreement: Tensor) -> Tensor:
        return logits


class OneTooMany(Broken):
    def forward(self, votes: Tensor, children: Capsules, *, bias: Tensor | None = None, **_: Any) -> Routed:
        return self.steps(votes, children, bias, self.iters + 1)[-1][1]


class LongTrace(Broken):
    def trace(self, votes: Tensor, children: Capsules, *, bias: Tensor | None = None, **_: Any) -> Trace:
        router = Broken(self.iters + 1)
        return router.trace(votes, children, bias=bias)


class FavouriteParent(Broken):
    def start(self, votes: Tensor) -> Tensor:
        return super().start(votes) + torch.arange(votes.shape[2], dtype=votes.dtype)


class FavouriteChild(Broken):
    def see(self, votes: Tensor, children: Capsules) -> Tensor:
        return votes * torch.linspace(1, 2, votes.shape[1], dtype=votes.dtype).view(1, -1, 1, 1)


class MeanOverChildren(Broken):
    def see(self, votes: Tensor, children: Capsules) -> Tensor:
        return votes / votes.shape[1]


class IgnoresActivations(Broken):
    """The pitfall of EM: the activation cancels, here because it is not used."""

    laws = NAMES


class ActivationsCancel(Broken):
    laws = NAMES

    def see(self, votes: Tensor, children: Capsules) -> Tensor:
        weight = children.activations[..., None, None]
        return votes * (weight + 1e-9) / (weight + 1e-9)


class HonoursActivations(Broken):
    laws = NAMES

    def see(self, votes: Tensor, children: Capsules) -> Tensor:
        return votes * children.activations[..., None, None]


class OtherRoute(Broken):
    def route(self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, **_: Any) -> Capsules:
        return super().route(children, weight.transpose(2, 3), bias=bias)


class IgnoresMask(Broken):
    def route(self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, **_: Any) -> Capsules:
        return super().route(children, weight, bias=bias)


class BiasWithoutMask(Broken):
    def route(
        self, children: Capsules, weight: Tensor, *, bias: Tensor | None = None, mask: Tensor | None = None, **_: Any
    ) -> Capsules:
        return super().route(children, weight, bias=bias if mask is None else None, mask=mask)


BROKEN: list[tuple[type[Router], str]] = [
    (ChildSoftmax, "coupling_sums_to_one"),
    (HalfSoftmax, "coupling_sums_to_one"),
    (DoubleSoftmax, "coupling_is_a_share"),
    (NegativeCoupling, "coupling_is_a_share"),
    (BatchLogits, "samples_are_alone"),
    (SquashOverBatch, "samples_are_alone"),
    (SquashOverParents, "activations_are_probabilities"),
    (NoSquash, "activations_are_probabilities"),
    (DivideByLength, "zero_votes_are_finite"),
    (RootOfSquares, "zero_votes_are_finite"),
    (IgnoresIters, "one_iteration_is_uniform"),
    (IgnoresIters, "iterations_are_counted"),
    (NeverRoutes, "one_iteration_is_uniform"),
    (OneTooMany, "one_iteration_is_uniform"),
    (OneTooMany, "iterations_are_counted"),
    (OneTooMany, "trace_ends_in_the_result"),
    (LongTrace, "iterations_are_counted"),
    (LongTrace, "trace_ends_in_the_result"),
    (FavouriteParent, "permuting_parents_permutes"),
    (FavouriteParent, "one_iteration_is_uniform"),
    (FavouriteChild, "permuting_children_changes_nothing"),
    (MeanOverChildren, "absent_child_has_no_vote"),
    (IgnoresActivations, "inactive_child_has_no_vote"),
    (ActivationsCancel, "inactive_child_has_no_vote"),
    (OtherRoute, "route_is_vote_then_forward"),
    (IgnoresMask, "masked_child_changes_nothing"),
    (BiasWithoutMask, "full_mask_changes_nothing"),
]


@pytest.mark.parametrize(("router", "law"), BROKEN)
def test_broken_router_breaks_its_law(router: type[Router], law: str) -> None:
    with pytest.raises(AssertionError, match=f"^{law}: "):
        laws.LAWS[law](router, laws.Sizes(), torch.float64)
    with pytest.raises(AssertionError):
        laws.check(router)


@pytest.mark.parametrize("router", [Broken, HonoursActivations])
def test_correct_router_keeps_all_laws(router: type[Router]) -> None:
    assert laws.check(router) == sorted(router.laws)


def test_every_law_has_a_broken_router() -> None:
    assert {law for _, law in BROKEN} == NAMES


def test_parameter_gradients_are_checked() -> None:
    class Infinite(Broken):
        laws = frozenset({"zero_votes_are_finite"})

        def prepare(self, in_caps: int | None, out_caps: int, in_dim: int, out_dim: int, **factory: Any) -> None:
            self.slope = torch.nn.Parameter(torch.zeros(()))

        def lengths(self, poses: Tensor) -> Tensor:
            return super().lengths(poses) + self.slope.sqrt()

    with pytest.raises(AssertionError, match="slope is not finite"):
        laws.check(Infinite)


def test_infinite_results_are_found() -> None:
    class Infinite(Broken):
        laws = frozenset({"zero_votes_are_finite"})

        def squash(self, presquash: Tensor) -> Tensor:
            return 1 / presquash

    with pytest.raises(AssertionError, match="zero_votes_are_finite: the result is not finite"):
        laws.check(Infinite)


def test_register_own_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws.LAWS, "_items", dict(laws.LAWS._items))

    def never(make: Callable[..., Router], sizes: laws.Sizes, dtype: torch.dtype) -> None:
        raise AssertionError("no router does")

    entered: Any = laws.law(never)
    assert laws.LAWS["never"] is entered
    with pytest.raises(AssertionError, match="never: no router does"):
        entered(DynamicRouting, laws.Sizes(), torch.float64)
