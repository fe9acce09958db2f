"""Predicted labels from class activations, and whether they are correct."""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import ShapeError


def predict_labels(activations: Tensor, count: int = 1) -> Tensor:
    """Return the most active class of each sample, or the `count` most active ones.

    Args:
        activations: Activations of the class capsules.
        count: Number of labels per sample.

    Shape:
        activations: [B, J]; returns [B], or [B, count] if `count` is more than 1.

    Returns:
        The predicted labels, the most active class first.

    Example:
        >>> import torch
        >>> predict_labels(torch.tensor([[0.1, 0.7, 0.9]]), 2)
        tensor([[2, 1]])
    """
    return activations.argmax(dim=-1) if count == 1 else activations.topk(count, dim=-1).indices


def is_correct(activations: Tensor, labels: Tensor) -> Tensor:
    """Return which samples are classified correctly.

    With K labels per sample, the K most active classes must be these labels, in any order.

    Args:
        activations: Activations of the class capsules.
        labels: True labels.

    Shape:
        activations: [B, J]; labels: [B] or [B, K]; returns [B].

    Returns:
        A boolean per sample.

    Raises:
        ShapeError: If the labels have another shape or more labels than classes.

    Example:
        >>> import torch
        >>> is_correct(torch.tensor([[0.1, 0.7, 0.9], [0.8, 0.1, 0.9]]), torch.tensor([[1, 2], [1, 2]]))
        tensor([ True, False])
    """
    if labels.dim() == 1:
        return predict_labels(activations) == labels
    if labels.dim() != 2 or labels.shape[1] > activations.shape[1]:
        raise ShapeError(f"labels: expected [B] or [B, 2], got {tuple(labels.shape)}")
    predicted = predict_labels(activations, labels.shape[1]).view(labels.shape)  # [B, K]
    return (predicted.sort(dim=-1).values == labels.sort(dim=-1).values).all(dim=-1)
