"""One pass of softmax attention over the votes in Triton, differentiable, without stored votes (see README.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.grid import Pairs
from torchcaps.ops._flops import Cost
from torchcaps.ops._triton.device import check_device
from torchcaps.ops._triton.layer import Layer, sizes_of

if TYPE_CHECKING:
    from torchcaps.ops._triton.launch import Launch


def attend(
    layer: Layer,
    key: Tensor | None = None,
    pairs: Pairs | None = None,
    *,
    leaky: bool = False,
    through: bool = True,
    local: bool = False,
) -> Tensor:
    """Sum the votes for each parent, total_j = sum_i (coupling_ij + prior_ij) votes_ij.

    coupling is the softmax of votes . key + base + poses . route over the parents that compete for a child; it is
    uniform without any of the three. First derivatives only: the gradient of a gradient is an error.

    Args:
        layer: Children and weight.
        key: One vector per position and parent, which the votes are compared with.
        pairs: Prior, base and route; not a prior with one of the others.
        leaky: Add one more parent with logit 0, whose share is dropped.
        through: Whether gradients pass through the coupling.
        local: Parents of each position compete by themselves, whatever the layer says.

    Shape:
        key: [B, positions, J, D]; returns [B, positions, J, D].

    Returns:
        The sums, in float32 for types of 16 bits.
    """
    return _attend(layer, key, pairs, [leaky, False, through, layer.across and not local])[0]


def attend_weighted(layer: Layer, pairs: Pairs | None = None, *, local: bool = False) -> tuple[Tensor, Tensor]:
    """Sum the votes and their shares, share_ij = coupling_ij a_i, with the logits base + poses . route.

    Args:
        layer: Children and weight.
        pairs: Base and route; without them the coupling is uniform.
        local: As in `attend`.

    Shape:
        returns [B, positions, J, D] and [B, positions, J].

    Returns:
        The sums of the votes, and of the shares.
    """
    total, mass, _ = _attend(layer, None, pairs, [False, True, True, layer.across and not local])
    return total, mass


def _attend(layer: Layer, key: Tensor | None, pairs: Pairs | None, flags: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    # Activations without a role have no gradient, as in the reference.
    has_role = flags[1] or layer.offsets is not None
    activations = layer.activations if has_role else layer.activations.detach()
    offsets = None if layer.offsets is None else layer.offsets.to(layer.weight)
    prior, base, route = pairs or Pairs()
    tensors = [layer.poses, activations, layer.weight, key, prior, base, route, offsets]
    return _attention(*tensors, layer.window, flags)


def _check(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    key: Tensor | None,
    prior: Tensor | None,
    base: Tensor | None,
    route: Tensor | None,
    offsets: Tensor | None,
    window: list[int],
    flags: list[bool],
) -> None:
    sizes = sizes_of(poses, weight, window)
    pairs = [sizes.children, sizes.parents]
    _native.check_shape("activations", activations, poses.shape[:3])
    _native.check_shape("key", key, [sizes.batch, sizes.samples_positions, sizes.parents, sizes.out_dim])
    _native.check_shape("prior", prior, pairs)
    _native.check_shape("base", base, pairs)
    _native.check_shape("route", route, [*pairs, sizes.size])
    _native.check_shape("offsets", offsets, [sizes.places, len(sizes.grid)])
    if len(flags) != 4:
        raise ConfigError(f"flags: expected leaky, weighted, through and across, got {flags}")
    if flags[1] and (prior is not None or key is not None):
        raise ConfigError("weighted: expected False with a key or a prior, got True")
    if prior is not None and (base is not None or route is not None):
        raise ConfigError("prior: expected no base and no route with it, got both")


def _across(flags: list[bool], disjoint: bool) -> bool:
    return flags[3] and not disjoint


def _shapes(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> list[list[int]]:
    *_, window, flags = rest
    sizes = sizes_of(poses, weight, window)
    parents = [sizes.batch, sizes.samples_positions, sizes.parents]
    norm = list(poses.shape[:3]) if _across(flags, sizes.disjoint) else [0]
    return [[*parents, sizes.out_dim], parents if flags[1] else [0], norm]


def _cost(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Any) -> Cost:
    key, prior, base, route, _, window, flags = rest
    sizes = sizes_of(poses, weight, window)
    # Parents of several positions need a pass for the normaliser, and one for its gradient.
    logits = any(tensor is not None for tensor in (key, base, route))
    more = int(logits and _across(flags, sizes.disjoint))
    read = logits or prior is not None or flags[1]
    pulled = int(key is not None and flags[2])
    return Cost(sizes.vote_flops, 1 + more, pulled + int(read) + more * int(flags[2]))


def _launch(args: _native.Arguments, **others: Tensor | None) -> Launch:
    from torchcaps.ops._triton.launch import Launch

    poses, activations, weight, key, prior, base, route, offsets, window, flags = args
    check_device(poses)
    sizes, dtype = sizes_of(poses, weight, window), _native.sum_dtype(args[:8])
    tensors = {"prior": prior, "base": base, "route": route, **others}
    if key is not None:
        tensors["key"] = key.to(dtype)
    if flags[0]:
        tensors["background"] = poses.new_zeros(1, dtype=dtype)
    return Launch(
        sizes,
        poses,
        activations,
        weight,
        offsets,
        dtype,
        weighted=flags[1],
        across=_across(flags, sizes.disjoint),
        scaled_offsets=offsets is not None and not flags[1],
        tensors=tensors,
    )


def _forward(args: _native.Arguments, outputs: Sequence[Tensor]) -> None:
    launch = _launch(args)
    if launch.across:
        launch.tensors["norm"] = outputs[2].copy_(launch.combine_norm())
    sums = launch.sum()
    outputs[0].copy_(sums["total"].view_as(outputs[0]))
    if "mass" in sums:
        outputs[1].copy_(sums["mass"].view_as(outputs[1]))


def _backward(
    args: _native.Arguments, saved: Sequence[Tensor], grads: Sequence[Tensor], outputs: Sequence[Tensor | None]
) -> None:
    launch = _launch(args, norm=saved[0], grad=grads[0].unsqueeze(0), grad_mass=grads[1])
    through = args[9][2] and launch.has_logits
    names = ("poses", "activations", "weight", "key", "prior", "base", "route")
    wanted = {name: output for name, output in zip(names, outputs, strict=False) if output is not None}
    if through and launch.across:
        launch.tensors["gain"] = launch.combine_gain()
    found: dict[str, Tensor] = {}
    if "key" in wanted and through:
        found["key"] = launch.pull()["total"]
    if wanted.keys() - {"key"}:
        found |= launch.spread(through)
    found["prior" if args[4] is not None else "base"] = found.pop("pair", torch.empty(0))
    for name, output in wanted.items():
        if name in found and found[name].numel():
            output.copy_(found[name].view_as(output))
        else:
            output.zero_()


_attention = _native.native_op(
    "attend_triton",
    "(Tensor poses, Tensor activations, Tensor weight, Tensor? key, Tensor? prior, Tensor? base, Tensor? route, "
    "Tensor? offsets, int[] window, bool[] flags) -> (Tensor, Tensor, Tensor)",
    check=_check,
    shapes=_shapes,
    forward=_forward,
    backward=_backward,
    cost=_cost,
    saved=[2],
    differentiable=7,
    backend="triton",
)
