"""Gradients of the loss in each module: their norm, and how far different batches agree on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from torchcaps.diagnostics.hooks import routing_layers
from torchcaps.nn.routers import Router
from torchcaps.types import Capsules

Loss = Callable[[Capsules, Tensor], Tensor]


def gradient_norms(model: nn.Module, loss: Loss, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Return the norm of the loss gradient in each module.

    A routing layer includes the parameters of its router. Parameters without influence on the loss are left out. No
    gradient is stored in the parameters.

    Args:
        model: The network.
        loss: Loss of the network's capsules and the labels.
        images: Batch of images.
        labels: Their labels.

    Shape:
        images: [B, C, H, W]; labels: [B] or [B, 2].

    Returns:
        The norms by the module's path.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> model = create_model("capsnet_small").eval()
        >>> images = torch.rand(2, 1, 28, 28)
        >>> from torchcaps.nn import MarginLoss
        >>> gradient_norms(model, MarginLoss(), images, torch.tensor([0, 1]))["head"] > 0
        True
    """
    routed = tuple(routing_layers(model))
    squares: dict[str, float] = {}
    for name, gradient in _gradients(model, loss, images, labels).items():
        owner = next((layer for layer in routed if name.startswith(f"{layer}.")), name.rpartition(".")[0])
        squares[owner] = squares.get(owner, 0.0) + float(gradient.double().square().sum())
    return {owner: square**0.5 for owner, square in squares.items()}


def gradient_coherence(model: nn.Module, loss: Loss, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return the mean cosine between the loss gradients of two batches, in each module.

    Near 1 all batches ask for the same step. Near 0 a step for one batch does nothing for the next: the gradient is
    noise, as it is behind an E-step that is too sharp (`ops/em/README.md`). The parameters of routers are left out: all
    batches move these few numbers alike. A batch without a gradient in a module, such as one whose loss is zero, does
    not count there. Small batches have smaller cosines, so that only values of equal batches can be compared.

    Args:
        model: The network.
        loss: Loss of the network's capsules and the labels.
        batches: Images and labels.

    Shape:
        batches: images [B, C, H, W] and labels [B] or [B, 2].

    Returns:
        The mean cosines by the module's path; a module with a gradient in fewer than two batches has none.

    Example:
        >>> import torch
        >>> from torchcaps import create_model
        >>> from torchcaps.nn import MarginLoss
        >>> model = create_model("capsnet_small").eval()
        >>> batch = torch.rand(2, 1, 28, 28), torch.tensor([0, 1])
        >>> round(gradient_coherence(model, MarginLoss(), [batch, batch])["head"], 4)
        1.0
    """
    routers = tuple(name for name, module in model.named_modules() if isinstance(module, Router))
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for images, labels in batches:
        own: dict[str, list[Tensor]] = {}
        for name, gradient in _gradients(model, loss, images, labels).items():
            owner = name.rpartition(".")[0]
            if owner not in routers:
                own.setdefault(owner, []).append(gradient.flatten().double())
        for owner, parts in own.items():
            direction = torch.cat(parts)  # [parameters]
            norm = float(direction.norm())
            if norm > 0:
                sums[owner] = sums.get(owner, 0.0) + direction / norm  # [parameters]
                counts[owner] = counts.get(owner, 0) + 1
    # Of n unit vectors, the squared norm of the sum is n plus twice the sum of the n (n - 1) / 2 cosines.
    return {
        owner: (float(sums[owner].square().sum()) - count) / (count * (count - 1))
        for owner, count in counts.items()
        if count > 1
    }


def _gradients(model: nn.Module, loss: Loss, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the parameters that have an influence on the loss, by name."""
    named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with torch.enable_grad():
        value = loss(model(images), labels)
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(named, gradients, strict=True) if gradient is not None}
