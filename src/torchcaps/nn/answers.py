"""What a network says: the most active class, or the two most active where two things are in one image."""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import ShapeError


def answers(activations: Tensor, count: int = 1) -> Tensor:
    """The most active class of each sample, [B] from activations [B, J]; or the `count` most active, [B, count].

    >>> import torch
    >>> answers(torch.tensor([[0.1, 0.7, 0.9]]), 2)
    tensor([[2, 1]])
    """
    return activations.argmax(dim=-1) if count == 1 else activations.topk(count, dim=-1).indices


def right_answers(activations: Tensor, labels: Tensor) -> Tensor:
    """Which samples were answered wholly right, [B]: labels [B], or [B, 2] where both must be found, in any order.

    >>> import torch
    >>> right_answers(torch.tensor([[0.1, 0.7, 0.9], [0.8, 0.1, 0.9]]), torch.tensor([[1, 2], [1, 2]]))
    tensor([ True, False])
    """
    if labels.dim() == 1:
        return answers(activations) == labels
    if labels.dim() != 2 or labels.shape[1] > activations.shape[1]:
        raise ShapeError(f"labels: expected [B] or [B, 2], got {tuple(labels.shape)}")
    found = answers(activations, labels.shape[1]).view(labels.shape)  # [B, K]
    return (found.sort(dim=-1).values == labels.sort(dim=-1).values).all(dim=-1)
