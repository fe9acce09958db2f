"""Relevance by routing: the coupling tells which lower capsules a class capsule is made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import ImageModel
from torchcaps.nn import routing_layers
from torchcaps.types import Capsules


@dataclass(frozen=True)
class PrimaryRelevance:
    """Relevance of capsules that no routing has made.

    Attributes:
        layer: Path of the routing layer that reads them.
        capsules: The capsules.
        relevance: Share of each capsule in the activation of the explained class.

    Shape:
        capsules: a grid, poses [B, H, W, I, P] for images, [B, T, I, P] for signals, [B, D, H, W, I, P] for volumes, or
        a set, poses [B, I, P]; relevance: the same without P.
    """

    layer: str
    capsules: Capsules
    relevance: Tensor


@dataclass(frozen=True)
class RoutingRelevance:
    """Relevance of the children of every routing layer for one class per image.

    Attributes:
        labels: The explained classes.
        activations: Activations of all classes.
        layers: Routing layers that relevance was carried through, from the image to the classes.
        primary: The capsules at the lower end; together their relevance sums to 1 for each image.
        coupling: Coupling of the children of each layer to its parents in the last iteration.

    Shape:
        labels: [B]; activations: [B, J]; coupling of a dense layer: [B, I, J], of a convolutional one
        [B*H'*W', K*K*I, J].
    """

    labels: Tensor
    activations: Tensor
    layers: tuple[str, ...]
    primary: tuple[PrimaryRelevance, ...]
    coupling: dict[str, Tensor]


def routing_relevance(model: ImageModel, images: Tensor, labels: Tensor | None = None) -> RoutingRelevance:
    """Carry the activation of a class back through all capsule layers, by coupling times activation.

    A parent j gives child i the share c_ij a_i / sum_k c_kj a_k of its relevance. Through convolutional layers a child
    collects shares from all positions that see it. The result is what the capsules that no routing has made, the
    primary capsules, contribute to the class.

    Args:
        model: A network with capsule layers, in evaluation mode.
        images: The images.
        labels: The class to explain in each image. Default: the predicted one.

    Shape:
        images: [B, C, H, W]; labels: [B].

    Returns:
        The relevance of the primary capsules, which sums to 1 for each image.

    Raises:
        ConfigError: If the model has no capsule layer with routing.
        ShapeError: If the labels do not fit.

    Example:
        >>> from torchcaps import create_model
        >>> found = routing_relevance(create_model("capsnet_small").eval(), torch.rand(2, 1, 28, 28))
        >>> found.layers, found.primary[0].relevance.shape
        (('head',), torch.Size([2, 3, 3, 16]))
    """
    with torch.inference_mode(False), _carrying(model) as carried:
        activations: Tensor = model(images.detach().clone()).activations  # [B, J]
    with torch.inference_mode(False), torch.enable_grad():
        return _collect(model, carried, activations, labels)


def _collect(model: ImageModel, carried: list[_Call], activations: Tensor, labels: Tensor | None) -> RoutingRelevance:
    labels = _check_labels(activations, labels)
    if not carried or not activations.requires_grad:
        raise ConfigError(f"model: expected capsule layers with routing, got {type(model).__name__} without")
    chosen = activations.gather(1, labels[:, None]).sum()
    leaves = [call.leaf for call in carried if call.leaf is not None]
    gradients = torch.autograd.grad(chosen, leaves, allow_unused=True)
    primary = []
    reached = (call for call in carried if call.leaf is not None)
    for call, gradient in zip(reached, gradients, strict=True):
        if gradient is not None:
            primary.append(PrimaryRelevance(call.layer, call.children, gradient.clamp(min=0)))
    total = sum(part.relevance.flatten(1).sum(dim=1) for part in primary)  # [B]
    assert isinstance(total, Tensor)
    scaled = tuple(_scaled(part, total.clamp(min=torch.finfo(total.dtype).tiny)) for part in primary)
    layers = tuple(dict.fromkeys(call.layer for call in carried))
    coupling = {call.layer: call.coupling for call in carried}
    return RoutingRelevance(labels, activations.detach(), layers, scaled, coupling)


def strongest_children(found: RoutingRelevance, image: int, count: int = 8) -> list[dict[str, Any]]:
    """Return the primary capsules that contribute most to the explained class of an image.

    Args:
        found: Result of `routing_relevance`.
        image: Number of the image in the batch.
        count: Number of capsules.

    Returns:
        For each capsule, the most relevant first: `layer` that reads it, `place` in its grid, such as [row, column]
        (empty in a set), `type`, `relevance`, `activation`, and `coupling` to each class (None if it votes for
        capsules between). In a set, the type is the number of the capsule; of tokens, the number of the token.

    Example:
        >>> from torchcaps import create_model
        >>> found = routing_relevance(create_model("capsnet_small").eval(), torch.rand(1, 1, 28, 28))
        >>> sorted(strongest_children(found, 0, 2)[0])
        ['activation', 'coupling', 'layer', 'place', 'relevance', 'type']
    """
    rows = []
    for part in found.primary:
        relevance = part.relevance[image]  # [H, W, I] or [I]
        best = relevance.flatten().topk(min(count, relevance.numel()))
        coupling = found.coupling[part.layer]  # [N, I, J]
        direct = coupling.shape[::2] == found.activations.shape
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            place = [int(axis) for axis in torch.unravel_index(torch.tensor(index), relevance.shape)]
            rows.append(
                {
                    "layer": part.layer,
                    "place": place[:-1],
                    "type": place[-1],
                    "relevance": value,
                    "activation": float(part.capsules.activations[image].flatten()[index]),
                    "coupling": coupling[image, index].tolist() if direct else None,
                }
            )
    return sorted(rows, key=lambda row: -row["relevance"])[:count]


@dataclass
class _Call:
    """One call of a routing layer; `leaf` is set if no routing layer has made its children."""

    layer: str
    children: Capsules
    coupling: Tensor
    leaf: Tensor | None


@contextmanager
def _carrying(model: ImageModel) -> Iterator[list[_Call]]:
    """Let the gradient of a class activation be the relevance of the children, while the context lasts.

    The output of each routing layer keeps its value, but depends on the children as relevance does, which is linear.
    Views, slices and concatenations between the layers pass the gradient on unchanged.
    """
    calls: list[_Call] = []

    def hook(name: str) -> Any:
        def instead(layer: Any, args: tuple[Any, ...], output: Any) -> Any:
            if not args or not isinstance(args[0], Capsules) or not isinstance(output, Capsules):
                return output
            children: Capsules = args[0]
            plain = Capsules(children.poses.detach(), children.activations.detach())
            presence = children.activations if children.activations.requires_grad else _by_length(children)
            leaf = None
            if presence is None:
                presence = leaf = plain.activations.clone().requires_grad_()
            with torch.no_grad():
                rest = [Capsules(*(t.detach() for t in arg)) if isinstance(arg, Capsules) else arg for arg in args[1:]]
                coupling = layer.trace(plain, *rest).coupling[-1]  # [N, I, J]
            calls.append(_Call(name, plain, coupling, leaf))
            return _linked(layer, plain, presence, coupling, output)

        return instead

    needed = [parameter for parameter in model.parameters() if parameter.requires_grad]
    handles = [layer.register_forward_hook(hook(name)) for name, layer in routing_layers(model).items()]
    for parameter in needed:
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield calls
    finally:
        for parameter in needed:
            parameter.requires_grad_(True)
        for handle in handles:
            handle.remove()


def _by_length(children: Capsules) -> Tensor | None:
    """Activations that depend on the lengths of the poses, where only these come from a routing layer; or None."""
    if not children.poses.requires_grad:
        return None
    lengths = torch.linalg.vector_norm(children.poses, dim=-1)
    share = lengths / lengths.detach().clamp(min=torch.finfo(lengths.dtype).tiny)
    return children.activations.detach() * share


def _linked(layer: Any, children: Capsules, presence: Tensor, coupling: Tensor, output: Capsules) -> Capsules:
    """Return the output, with d output_j / d presence_i = share of child i in parent j."""
    tagged = Capsules(children.poses, presence)
    window = layer.window(children) if hasattr(layer, "window") else None
    flat = tagged.flatten().activations if window is None else window.gather(tagged).activations  # [N, I]
    weight = coupling * flat.detach().unsqueeze(-1)  # [N, I, J]
    weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)
    change = torch.einsum("nij,ni->nj", weight, flat - flat.detach())  # [N, J], of value 0
    activations = output.activations.detach() + change.reshape(output.activations.shape)
    # A pose of the same length: where the activation is computed from it once more, relevance is passed on as well.
    tiny = torch.finfo(activations.dtype).tiny
    poses = output.poses.detach() * (activations / activations.detach().clamp(min=tiny)).unsqueeze(-1)
    return Capsules(poses, activations)


def _scaled(part: PrimaryRelevance, total: Tensor) -> PrimaryRelevance:
    shape = (-1, *[1] * (part.relevance.dim() - 1))
    return PrimaryRelevance(part.layer, part.capsules, part.relevance / total.view(shape))


def _check_labels(activations: Tensor, labels: Tensor | None) -> Tensor:
    count, classes = activations.shape
    if labels is None:
        return activations.detach().argmax(dim=1)
    if labels.shape != (count,) or int(labels.min()) < 0 or int(labels.max()) >= classes:
        got = f"{list(labels.shape)}, {labels.flatten()[:8].tolist()}"
        raise ShapeError(f"labels: expected [{count}] from 0 to {classes - 1}, got {got}")
    return labels
