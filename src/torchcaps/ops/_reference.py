"""Run the reference of a routing on children and weight, dense or through a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchcaps.errors import ConfigError
from torchcaps.ops._iterations import Step, last_step, parent_softmax, uniform_coupling
from torchcaps.ops._pieces import split_batch, votes_bytes, worth_recomputing
from torchcaps.ops._routing import Routing
from torchcaps.ops.conv import Window
from torchcaps.ops.votes import vote
from torchcaps.types import Capsules

CouplingMode = Literal["routed", "uniform"]


def run_reference(
    routing: Routing, children: Capsules, weight: Tensor, window: Window | None, params: dict[str, Any]
) -> Capsules:
    """Route children through a weight with the reference; see `route` and, with a window, `route_conv`."""
    if window is None:
        last = last_step(reference_steps(routing, vote(children.poses, weight), children, None, params))
        return Capsules(last.poses, last.activations)
    gathered = window.gather(children)
    votes = conv_votes(routing, gathered, weight, window)  # [B*H'*W', K*K*I, J, D]
    last = last_step(reference_steps(routing, votes, gathered, window, params))
    return window.unflatten_grid(Capsules(last.poses, last.activations))


def run_in_pieces(routing: Routing, children: Capsules, weight: Tensor, params: dict[str, Any]) -> Capsules:
    """Run the reference on one piece of a large batch after the other, and once more for the gradients."""
    poses = children.poses
    if not worth_recomputing(poses, weight, None):
        return run_reference(routing, children, weight, None, params)
    parts: list[Capsules] = []
    for piece in split_batch(poses, weight, None, votes_bytes(poses.device)):
        own = {name: value[piece.samples] if name in routing.per_sample else value for name, value in params.items()}
        some = Capsules(*(tensor[piece.samples] for tensor in children))
        part: Any = checkpoint(run_reference, routing, some, weight, None, own, use_reentrant=False)
        parts.append(part)
    return Capsules(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def conv_votes(routing: Routing, gathered: Capsules, weight: Tensor, window: Window) -> Tensor:
    """Compute the votes of gathered children.

    A routing that does not read activations measures presence by length: an offset then counts in proportion to the
    child's activation.
    """
    return window.votes(gathered.poses, weight, None if routing.reads_activations else gathered.activations)


def reference_steps(
    routing: Routing,
    votes: Tensor,
    children: Capsules,
    window: Window | None,
    params: dict[str, Any],
    coupling: CouplingMode = "routed",
) -> Iterator[Step]:
    """Run the reference on votes [B, I, J, D] of children [B, I, P], gathered through `window` if there is one."""
    inputs = dict(params)
    if routing.reads_activations:
        inputs["activations"] = children.activations
    if routing.reads_poses:
        inputs["poses"] = children.poses
    if window is not None:
        inputs.setdefault("softmax", window.softmax)
    return routing.steps(votes, **set_coupling(routing, coupling, inputs))


def set_coupling(routing: Routing, coupling: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a reference with the softmax that a coupling mode asks for."""
    if coupling == "routed":
        return inputs
    if coupling not in get_args(CouplingMode):
        raise ConfigError(f"coupling: expected one of {', '.join(get_args(CouplingMode))}, got '{coupling}'")
    if not routing.has_softmax:
        raise ConfigError(f"coupling: expected 'routed' for {routing.name} routing, got 'uniform' (it has no softmax)")
    return {**inputs, "softmax": uniform_coupling(inputs.get("softmax", parent_softmax))}
