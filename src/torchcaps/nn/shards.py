"""Dense capsule layers whose parents are divided over processes, so that none of them has the whole weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn._exchange import GatherSamples, SwapParents, local_part, shared_softmax
from torchcaps.types import Capsules

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from torchcaps.nn.linear import CapsLinear


def shard_parents(layer: CapsLinear, mesh: DeviceMesh) -> CapsLinear:
    """Divide the parents of a dense capsule layer over processes, in place: each keeps the weights of its own parents.

    All processes call it, and then the layer, in the same order. Each passes its own samples and receives all parents
    of them. In between, the layer gathers the children of all processes, and each process routes all of them to its
    own parents. The weight is never gathered. What couples the parents of different processes is the softmax over the
    parents: two numbers per child and iteration are exchanged for it, the largest logit and the sum.

    The result is that of the whole layer, up to rounding. Parameters become `DTensor`s, divided along their axis of
    parents. Their gradients are means over the processes, as those of DDP and FSDP are. Leave them out of these
    (`ignored_params` of `fully_shard`).

    Args:
        layer: The layer.
        mesh: The processes, one axis.

    Returns:
        The same layer.

    Raises:
        ConfigError: If the mesh has several axes, the number of parents is not a multiple of that of the processes, or
            the routing couples its parents by more than a softmax.

    Example:
        >>> shard_parents(CapsLinear(1152, 1000, 8, 16), init_device_mesh("cpu", (4,)))  # doctest: +SKIP
    """
    if (reason := why_not_sharded(layer, mesh)) is not None:
        raise ConfigError(reason)
    # A second of import that layers on one device do not need.
    from torch.distributed.tensor import Shard, distribute_tensor

    for module, name, axis in _parent_axes(layer):
        parameter = getattr(module, name)
        whole = distribute_tensor(parameter.detach(), mesh, [Shard(axis % parameter.dim())])
        setattr(module, name, nn.Parameter(whole, requires_grad=parameter.requires_grad))
    layer.shards = ParentShards(mesh)
    return layer


def why_not_sharded(layer: CapsLinear, mesh: DeviceMesh) -> str | None:
    """Return why the parents of a layer cannot be divided over processes, or None.

    Args:
        layer: The layer.
        mesh: The processes.

    Returns:
        The text of the error.
    """
    if mesh.ndim != 1:
        return f"mesh: expected one axis, got {mesh.ndim} ({tuple(mesh.mesh.shape)})"
    parents = layer.weight.shape[-3]
    if parents % mesh.size():
        return f"layer: expected a multiple of {mesh.size()} parents, one part per process, got {parents}"
    router = layer.routing
    if router.parent_axes is None:
        return (
            f"routing: expected one that couples its parents by a softmax alone, got {type(router).__name__} (its "
            "weight can be divided by fully_shard, which gathers it for each call)"
        )
    if getattr(router, "start", "parents") != "parents":
        return f"start: expected 'parents', which is the same in a dense layer, got '{router.start}'"
    return None


def _parent_axes(layer: CapsLinear) -> Iterator[tuple[nn.Module, str, int]]:
    """Yield the parameters with an axis of parents: module, name, axis."""
    yield layer, "weight", -3
    if layer.bias is not None:
        yield layer, "bias", -2
    for name, axis in layer.routing.parent_axes or ():
        if getattr(layer.routing, name) is not None:
            yield layer.routing, name, axis


class ParentShards:
    """How a layer routes where its parents are divided over processes.

    Args:
        mesh: The processes.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.group = mesh.get_group()

    def softmax(self, logits: Tensor, *, background: float | Tensor | None = None) -> Tensor:
        """Compute the coupling over the parents of all processes.

        Args:
            logits: Logits of the parents of this process.
            background: Logit of belonging to no parent.

        Shape:
            logits: [B, I, J/W]; returns [B, I, J/W].

        Returns:
            The coupling; it sums to 1 over the parents of all processes.
        """
        return shared_softmax(logits, self.group, background)

    def route(self, layer: CapsLinear, children: Capsules, mask: Tensor | None) -> Capsules:
        """Route the samples of this process to all parents.

        Args:
            layer: The layer.
            children: The lower capsules of this process.
            mask: True where a child is present.

        Shape:
            children: [B, I, P], with another B in each process if need be; mask: bool [B, I]; returns [B, J, D].

        Returns:
            The parents.
        """
        count = torch.tensor(len(children.poses), device=children.poses.device)
        distributed.all_reduce(count, distributed.ReduceOp.MAX, group=self.group)
        every, present = self._gather(children, mask, int(count))
        params = layer.routing._inputs(every, layer.bias, None, present)
        params = {name: local_part(value) if isinstance(value, Tensor) else value for name, value in params.items()}
        parents = ops.route(
            every,
            local_part(layer._matrices(every)),
            layer.routing.algorithm,
            backend=layer.backend,
            mask=present,
            softmax=self.softmax,
            **params,
        )
        return self._swap(parents, len(children.poses))

    def _gather(self, children: Capsules, mask: Tensor | None, count: int) -> tuple[Capsules, Tensor | None]:
        """Return the children of all processes, `count` samples of each: those that are missing are zero."""
        parts = [children.poses, children.activations.unsqueeze(-1)]
        if mask is not None:
            parts.append(mask.to(children.poses.dtype).unsqueeze(-1))
        own = torch.cat(parts, dim=-1)  # [B, I, P + 1 or 2]
        own = F.pad(own, (0, 0, 0, 0, 0, count - len(own)))
        every: Any = GatherSamples.apply(own, self.group)  # [W*B, I, P + 1 or 2]
        poses, activations, *rest = every.split([children.poses.shape[-1], *[1] * (len(parts) - 1)], dim=-1)
        return Capsules(poses, activations.squeeze(-1)), rest[0].squeeze(-1) > 0 if rest else None

    def _swap(self, parents: Capsules, count: int) -> Capsules:
        """Return all parents of the first `count` samples of this process."""
        joined = torch.cat([parents.poses, parents.activations.unsqueeze(-1)], dim=-1)  # [W*B, J/W, D + 1]
        received: Any = SwapParents.apply(joined.unflatten(0, (self.group.size(), -1)), self.group)
        whole = received.transpose(0, 1).flatten(1, 2)[:count]  # [B, J, D + 1]
        # Copies: FSDP warns of layers that return views.
        return Capsules(whole[..., :-1].clone(), whole[..., -1].clone())
