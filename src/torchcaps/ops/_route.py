"""Route children through a weight, or votes iteration by iteration, with any algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchcaps.ops._backends import choose_kernel, transform_reason
from torchcaps.ops._export import map_samples
from torchcaps.ops._iterations import Step
from torchcaps.ops._kernel import Kernel
from torchcaps.ops._mask import clear_unseen, expand_mask, mask_children
from torchcaps.ops._reference import CouplingMode, run_in_pieces, run_reference, set_coupling
from torchcaps.ops._routing import ROUTINGS
from torchcaps.ops.conv import Window
from torchcaps.ops.votes import check_layer
from torchcaps.types import Capsules, Trace


def route(
    children: Capsules,
    weight: Tensor,
    algorithm: str = "dynamic",
    *,
    backend: str = "auto",
    mask: Tensor | None = None,
    **params: Any,
) -> Capsules:
    """Route a dense layer: every child votes for every parent.

    votes_ij = poses_i weight_ij, then the routing. A kernel never stores the votes.

    Args:
        children: The lower capsules.
        weight: One matrix per child and parent, or one per parent that all children share.
        algorithm: Name of a routing in `ROUTINGS`.
        backend: `auto` takes the first available kernel that supports the case, and the reference where there is none.
            Any other name selects that implementation.
        mask: True where a child is present. The others have no effect and no gradient, whatever their values. The
            parents of a sample without any child are 0.
        **params: Options and learned tensors of the routing, as its reference takes them: `iters`, `bias`, ...

    Shape:
        children: poses [B, I, P], activations [B, I]; weight: [I, J, P, D] or [J, P, D]; mask: bool [B, I]; returns
        poses [B, J, D], activations [B, J].

    Returns:
        The parents.

    Raises:
        ConfigError: If an option is unknown or the named backend is not available or does not support the case.
        ShapeError: If poses, weight and mask do not fit.
        UnknownNameError: If there is no such routing.

    Example:
        >>> children = Capsules(torch.randn(2, 6, 8), torch.ones(2, 6))
        >>> route(children, torch.randn(6, 3, 8, 16), "dynamic", iters=3).poses.shape
        torch.Size([2, 3, 16])
    """
    if mask is not None:
        present = mask_children(children, mask)
        return clear_unseen(route(present, weight, algorithm, backend=backend, **params), mask.any(dim=1))
    routing, params = ROUTINGS[algorithm], _given(params)
    routing.check_options(params)
    check_layer(children, weight)
    kernel = choose_kernel(routing, backend, children, weight, None, params)
    if kernel is not None:
        assert kernel.dense is not None
        return kernel.dense(children, weight, **_named(kernel, algorithm, params))
    # `recompute` is an operator, and takes no functions.
    if "softmax" in params and backend == "auto" and transform_reason() is None:
        return run_in_pieces(routing, children, weight, params)
    return run_reference(routing, children, weight, None, params)


def route_conv(
    children: Capsules,
    weight: Tensor,
    window: Window,
    algorithm: str = "em",
    *,
    backend: str = "auto",
    mask: Tensor | None = None,
    **params: Any,
) -> Capsules:
    """Route a convolutional layer: the children under a window vote for the parents at its position.

    Args:
        children: A grid of lower capsules.
        weight: Matrices of every place of the window, or of one place, shared by all; see `Window.votes`.
        window: Kernel size, stride, competition and kind of pose.
        algorithm: Name of a routing in `ROUTINGS`.
        backend: As in `route`.
        mask: True where a child is present, or all children of a place; as in `route`. The parents of a position that
            sees no child are 0.
        **params: Options and learned tensors of the routing, as its reference takes them. Every position counts as a
            sample there.

    Shape:
        children: poses [B, H, W, I, P], activations [B, H, W, I]; weight: [K*K*I, J, p, p] for matrices,
        [K*K*I, J, P, D] for vectors; mask: bool [B, H, W, I] or [B, H, W]; returns poses [B, H', W', J, D],
        activations [B, H', W', J]. A grid of a signal has one axis, [B, T, I, P], of a volume three.

    Returns:
        A grid of parents.

    Raises:
        ConfigError: If an option is unknown or the named backend is not available or does not support the case.
        ShapeError: If poses and weight do not fit.
        UnknownNameError: If there is no such routing.

    Example:
        >>> children = Capsules(torch.randn(2, 5, 5, 4, 16), torch.rand(2, 5, 5, 4))
        >>> betas = {"beta_u": torch.zeros(7), "beta_a": torch.zeros(7)}
        >>> route_conv(children, torch.randn(36, 7, 4, 4), Window((5, 5), (3, 3)), "em", **betas).poses.shape
        torch.Size([2, 3, 3, 7, 16])
    """
    if mask is not None:
        present, seen = mask_children(children, mask), window.seen(expand_mask(mask, children))
        return clear_unseen(route_conv(present, weight, window, algorithm, backend=backend, **params), seen)
    routing, params = ROUTINGS[algorithm], _given(params)
    routing.check_options(params)
    window.check(children, weight)
    kernel = choose_kernel(routing, backend, children, weight, window, params)
    if kernel is not None:
        return kernel.run_conv(children, weight, window, _named(kernel, algorithm, params))
    each = {name: params.pop(name) for name in routing.per_sample & params.keys()}
    if torch.compiler.is_exporting():
        # Its tables are constants of the graph, outside of what is repeated for every sample.
        window = window.prepare()

    def run(some: Capsules, **values: Tensor) -> Capsules:
        return run_reference(routing, some, weight, window, {**params, **values})

    return map_samples(run, children, weight, window, each)


def trace(algorithm: str, votes: Tensor, *args: Any, coupling: CouplingMode = "routed", **params: Any) -> Trace:
    """Run a reference and keep every iteration.

    Args:
        algorithm: Name of a routing in `ROUTINGS`.
        votes: Predictions of every child for every parent.
        *args: Positional arguments of the reference after the votes.
        coupling: `uniform` replaces the coupling of every iteration by equal shares.
        **params: Keyword arguments of the reference.

    Shape:
        votes: [B, I, J, D].

    Returns:
        The iterations, stacked along a first axis R.

    Raises:
        ConfigError: If `coupling` is unknown, or `uniform` for a routing without a softmax.
        UnknownNameError: If there is no such routing.

    Example:
        >>> trace("dynamic", torch.randn(2, 6, 3, 4), iters=3).coupling.shape
        torch.Size([3, 2, 6, 3])
    """
    routing = ROUTINGS[algorithm]
    return stack_steps(algorithm, votes, routing.steps(votes, *args, **set_coupling(routing, coupling, params)))


def stack_steps(algorithm: str, votes: Tensor, steps: Iterator[Step]) -> Trace:
    """Run all iterations and stack them as a Trace."""
    logits, couplings, poses, activations, extras = zip(*steps, strict=True)
    return Trace(
        algorithm=algorithm,
        votes=votes,
        logits=torch.stack(logits),  # [R, B, I, J]
        coupling=torch.stack(couplings),  # [R, B, I, J]
        poses=torch.stack(poses),  # [R, B, J, D]
        activations=torch.stack(activations),  # [R, B, J]
        extras={name: torch.stack([extra[name] for extra in extras]) for name in extras[0]},
    )


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _named(kernel: Kernel, algorithm: str, params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "routing": algorithm} if kernel.takes_routing else params
