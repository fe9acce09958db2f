"""The laws of routing: properties that a router keeps whatever its algorithm, as checks for any router.

Each law is a function of a factory of routers, a class or a `partial` of one. It raises AssertionError, with its name
first, where the router breaks it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchcaps import ops
from torchcaps._registry import Registry
from torchcaps.nn import Router
from torchcaps.types import Capsules, Routed

RouterFactory = Callable[..., Router]
Law = Callable[[RouterFactory, "Sizes", torch.dtype], None]

LAWS: Registry[Law] = Registry("law")


def law(check: Law) -> Law:
    """Register a law under the name of its function; it draws the same random numbers in every call.

    Args:
        check: The law: a function that raises AssertionError where a router breaks it.

    Returns:
        The law with a fixed seed and its name in the error.
    """

    @functools.wraps(check)
    def named(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                check(make, sizes, dtype)
            except AssertionError as broken:
                raise AssertionError(f"{check.__name__}: {broken}") from None

    return LAWS.register(check.__name__)(named)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the case that a law is checked on.

    Args:
        batch: Number of samples.
        children: Number of children.
        parents: Number of parents.
        in_dim: Pose size of the children.
        out_dim: Pose size of the parents.
    """

    batch: int = 3
    children: int = 7
    parents: int = 3
    in_dim: int = 4
    out_dim: int = 4


def check(make: RouterFactory, *, sizes: Sizes | None = None, dtype: torch.dtype = torch.float64) -> list[str]:
    """Check every law that a router declares in `Router.laws`.

    Args:
        make: Class of the router, or a `partial` of it. The laws about iterations call it with `iters`.
        sizes: Sizes of the case.
        dtype: Type of the tensors.

    Returns:
        The names of the laws.

    Raises:
        AssertionError: If the router breaks a law.
        UnknownNameError: If it declares a law that does not exist.

    Example:
        >>> from torchcaps.nn import DynamicRouting
        >>> "coupling_sums_to_one" in check(DynamicRouting)
        True
    """
    names = sorted(make().laws)
    for name in names:
        LAWS[name](make, sizes or Sizes(), dtype)
    return names


class _Case(NamedTuple):
    router: Router
    children: Capsules
    weight: Tensor  # [I, J, P, D]
    votes: Tensor  # [B, I, J, D]
    bias: Tensor | None  # [J, D]

    def run(self) -> Routed:
        return self.router(self.votes, self.children, bias=self.bias)


def _case(make: RouterFactory, sizes: Sizes, dtype: torch.dtype, scale: float = 1.0, **options: int) -> _Case:
    for name in options:
        _must(name in inspect.signature(make).parameters, f"expected a router with the option '{name}'")
    router = make(**options)
    router.prepare(sizes.children, sizes.parents, sizes.in_dim, sizes.out_dim)
    # Children as a layer below would give them: lengths below one, and activations that are these lengths.
    poses = ops.squash(torch.randn(sizes.batch, sizes.children, sizes.in_dim, dtype=dtype))  # [B, I, P]
    weight = scale * torch.randn(sizes.children, sizes.parents, sizes.in_dim, sizes.out_dim, dtype=dtype)
    bias = torch.randn(sizes.parents, sizes.out_dim, dtype=dtype) if router.takes_bias else None  # [J, D]
    children = Capsules(poses, torch.linalg.vector_norm(poses, dim=-1))
    return _Case(router.to(dtype), children, weight, ops.vote(poses, weight), bias)


def _with_room(router: Router, make: RouterFactory, sizes: Sizes) -> Router:
    """Return the same router for one more child, whose parameters have their initial values."""
    wider = make()
    wider.prepare(sizes.children + 1, sizes.parents, sizes.in_dim, sizes.out_dim)
    known = router.state_dict()
    for name, value in wider.state_dict().items():
        value[tuple(map(slice, known[name].shape))] = known[name]
    return wider


def _must(holds: bool | Tensor, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def _same(got: Tensor, expected: Tensor, what: str) -> None:
    torch.testing.assert_close(got, expected, msg=lambda difference: f"{what}\n{difference}")


@law
def coupling_is_a_share(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """Coupling is not negative and sums to at most 1 over the parents.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    coupling = _case(make, sizes, dtype).run().coupling  # [B, I, J]
    _must(coupling.min() >= 0, f"expected no negative coupling, got {coupling.min()}")
    most = coupling.sum(-1).max()
    _must(most <= 1 + 1e-5, f"expected sums of at most 1 over the parents, got {most}")


@law
def coupling_sums_to_one(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """The coupling of each child sums to 1 over the parents.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    total = _case(make, sizes, dtype).run().coupling.sum(-1)  # [B, I]
    _same(total, torch.ones_like(total), "sums over the parents")


@law
def activations_are_probabilities(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """Activations lie in [0, 1], also for large votes.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    for scale in (1.0, 100.0):
        activations = _case(make, sizes, dtype, scale).run().activations  # [B, J]
        low, high = activations.min(), activations.max()
        _must(low >= 0 and high <= 1 + 1e-5, f"got values from {low} to {high}")


@law
def permuting_parents_permutes(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """Permuting the parents permutes the result.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    order = torch.arange(sizes.parents).roll(1)
    bias = None if case.bias is None else case.bias[order]
    out, other = case.run(), case._replace(votes=case.votes[:, :, order], bias=bias).run()
    _same(other.poses, out.poses[:, order], "poses")
    _same(other.activations, out.activations[:, order], "activations")
    _same(other.coupling, out.coupling[:, :, order], "coupling")


@law
def permuting_children_changes_nothing(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """Permuting the children does not change the parents.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    order = torch.arange(sizes.children).roll(1)
    children = Capsules(case.children.poses[:, order], case.children.activations[:, order])
    out, other = case.run(), case._replace(votes=case.votes[:, order], children=children).run()
    _same(other.poses, out.poses, "poses")
    _same(other.activations, out.activations, "activations")
    _same(other.coupling, out.coupling[:, order], "coupling")


@law
def samples_are_alone(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """The result of a sample does not depend on the other samples of its batch.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    out = case.run()
    for sample in range(sizes.batch):
        one = slice(sample, sample + 1)
        children = Capsules(case.children.poses[one], case.children.activations[one])
        alone = case._replace(votes=case.votes[one], children=children).run()
        for name, got, expected in zip(Routed._fields, alone, out, strict=True):
            _same(got, expected[one], f"{name} of sample {sample}")


@law
def absent_child_has_no_vote(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """A child with zero pose and zero activation has no effect.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    (poses, activations), weight = case.children, case.weight
    without = case.router.route(case.children, weight, bias=case.bias)
    absent = Capsules(
        torch.cat([poses, torch.zeros_like(poses[:, :1])], 1),
        torch.cat([activations, torch.zeros_like(activations[:, :1])], 1),
    )
    router = _with_room(case.router, make, sizes).to(dtype)
    beside = router.route(absent, torch.cat([weight, weight[:1]]), bias=case.bias)
    _same(beside.poses, without.poses, "poses")
    _same(beside.activations, without.activations, "activations")


@law
def masked_child_changes_nothing(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """A masked child has no effect and no gradient, even if it is not a number; without children parents are 0.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    padding = torch.full_like(case.children.poses[:, :1], torch.nan)  # [B, 1, P]
    children = [case.children.poses.detach(), case.children.activations.detach()]
    padded = [torch.cat([children[0], padding], 1), torch.cat([children[1], padding[..., 0]], 1)]
    mask = torch.arange(sizes.children + 1).expand(sizes.batch, -1) < sizes.children  # [B, I + 1]
    results: list[list[Tensor]] = []
    for router, inputs, weight, present in (
        (case.router, children, case.weight, None),
        (_with_room(case.router, make, sizes).to(dtype), padded, torch.cat([case.weight, case.weight[:1]]), mask),
    ):
        leaves = [tensor.clone().requires_grad_() for tensor in (*inputs, weight)]
        out = router.route(Capsules(leaves[0], leaves[1]), leaves[2], bias=case.bias, mask=present)
        seen = torch.cat([out.poses.flatten(), out.activations.flatten()])
        grads = torch.autograd.grad(
            (seen * torch.linspace(1, 2, len(seen), dtype=dtype)).sum(), leaves, allow_unused=True
        )
        zeros = [torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, grads, strict=True)]
        results.append([*out, *zeros])
        if present is not None:
            rest = (zeros[0][:, -1], zeros[1][:, -1], zeros[2][-1])
            _must(
                all(bool((part == 0).all()) for part in rest), "expected no gradient of a masked child and its weight"
            )
            empty = router.route(Capsules(leaves[0], leaves[1]), leaves[2], bias=case.bias, mask=torch.zeros_like(mask))
            _must(not any(part.any() for part in empty), "expected parents of 0 without any child")
    names = ("poses", "activations", "gradient of poses", "gradient of activations", "gradient of weight")
    for name, alone, beside in zip(names, *results, strict=True):
        _same(beside[tuple(map(slice, alone.shape))], alone, name)


@law
def full_mask_changes_nothing(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """A mask of all children changes nothing.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    mask = torch.ones_like(case.children.activations, dtype=torch.bool)  # [B, I]
    without = case.router.route(case.children, case.weight, bias=case.bias)
    masked = case.router.route(case.children, case.weight, bias=case.bias, mask=mask)
    for name, got, expected in zip(Capsules._fields, masked, without, strict=True):
        _same(got, expected, name)


@law
def inactive_child_has_no_vote(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """The votes of a child with zero activation have no effect.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    activations = case.children.activations.clone()
    activations[:, 0] = 0
    case = case._replace(children=Capsules(case.children.poses, activations))
    votes = case.votes.clone()
    votes[:, 0] = votes[:, 0].neg() + 1
    out, other = case.run(), case._replace(votes=votes).run()
    _same(other.poses, out.poses, "poses")
    _same(other.activations, out.activations, "activations")


@law
def zero_votes_are_finite(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """Zero votes of active and inactive children give finite values and gradients.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    for presence in (0.0, 1.0):
        case = _case(make, sizes, dtype)
        poses = torch.zeros_like(case.children.poses, requires_grad=True)
        activations = torch.full_like(case.children.activations, presence).requires_grad_()
        votes = torch.zeros_like(case.votes, requires_grad=True)
        bias = None if case.bias is None else torch.zeros_like(case.bias, requires_grad=True)
        out = case.router(votes, Capsules(poses, activations), bias=bias)
        _must(all(part.isfinite().all() for part in out), "the result is not finite")
        seen = torch.cat([out.poses.flatten(), out.activations.flatten()])
        (seen * torch.randn_like(seen)).sum().backward()
        inputs = {"poses": poses, "activations": activations, "votes": votes, "bias": bias}
        for name, value in [*inputs.items(), *case.router.named_parameters()]:
            finite = value is None or value.grad is None or value.grad.isfinite().all()
            _must(finite, f"the gradient of {name} is not finite")


@law
def one_iteration_is_uniform(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """With `iters=1` the coupling is uniform; with `iters=3` it is not.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    coupling = _case(make, sizes, dtype, iters=1).run().coupling  # [B, I, J]
    _same(coupling, coupling[..., :1].expand_as(coupling), "coupling after one iteration")
    later = _case(make, sizes, dtype, iters=3).run().coupling  # [B, I, J]
    moved = sizes.parents == 1 or not torch.allclose(later, later[..., :1].expand_as(later))
    _must(moved, "expected coupling that moves with more iterations, got uniform coupling")


@law
def iterations_are_counted(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """A trace has `iters` iterations, and iteration n equals the result with `iters=n`.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype, iters=3)
    trace = case.router.trace(case.votes, case.children, bias=case.bias)
    _must(trace.iters == 3, f"expected a trace of 3 iterations, got {trace.iters}")
    for iters in (1, 2, 3):
        router = make(iters=iters)
        router.prepare(sizes.children, sizes.parents, sizes.in_dim, sizes.out_dim)
        router = router.to(dtype)
        router.load_state_dict(case.router.state_dict())
        out = case._replace(router=router).run()
        _same(out.poses, trace.poses[iters - 1], f"poses with iters={iters}")
        _same(out.coupling, trace.coupling[iters - 1], f"coupling with iters={iters}")


@law
def trace_ends_in_the_result(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """The last iteration of a trace equals the result.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    trace = case.router.trace(case.votes, case.children, bias=case.bias)
    for name, got, expected in zip(Routed._fields, trace.routed, case.run(), strict=True):
        _same(got, expected, name)


@law
def route_is_vote_then_forward(make: RouterFactory, sizes: Sizes, dtype: torch.dtype) -> None:
    """`route` from children and weight equals `forward` from their votes.

    Args:
        make: Makes the router from its options.
        sizes: Sizes of the votes: batch, children, parents, pose.
        dtype: Type of the votes.
    """
    case = _case(make, sizes, dtype)
    routed = case.router.route(case.children, case.weight, bias=case.bias)
    for name, got, expected in zip(Capsules._fields, routed, case.run().capsules, strict=True):
        _same(got, expected, name)
