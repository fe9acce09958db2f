"""Calibration: the temperature of class probabilities, and how far they agree with the accuracy."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import ConfigError, ShapeError
from torchcaps.evaluation._weighted import bin_numbers

# Temperatures between which the best one is searched.
LOWEST, HIGHEST = 0.01, 100.0
_BISECTIONS = 60


def fit_temperature(activations: Tensor, labels: Tensor) -> float:
    """Return the temperature T with the lowest log loss of softmax(log(a) / T) (Guo et al. 2017, section 4.2).

    The targets are smoothed as by Platt 1999: with N images and J classes the true class has the probability
    (N + 1) / (N + J), and every other class 1 / (N + J). T stays finite even if all N images are classified correctly.
    The log loss is convex in 1/T, so that a bisection of its derivative finds the minimum.

    Args:
        activations: Activations of the class capsules on images that were not trained on.
        labels: Their labels.

    Shape:
        activations: [N, J]; labels: [N].

    Returns:
        The temperature, from 0.01 to 100.

    Raises:
        ConfigError: If there are no images, or an activation is not finite.
        ShapeError: If there is not one label per image.

    Example:
        >>> activations = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.4, 0.6], [0.6, 0.4]])
        >>> round(fit_temperature(activations, torch.tensor([0, 0, 1, 0])), 2)
        0.25
    """
    if labels.shape != activations.shape[:1]:
        raise ShapeError(f"labels: expected {tuple(activations.shape[:1])}, got {tuple(labels.shape)}")
    if not len(activations) or not activations.isfinite().all():
        raise ConfigError(f"activations: expected finite numbers of at least one image, got {len(activations)} images")
    logs = activations.double().clamp(min=torch.finfo(activations.dtype).tiny).log()  # [N, J]
    count, classes = logs.shape
    targets = (F.one_hot(labels, classes) * count + 1) / (count + classes)  # [N, J]
    wanted = (targets * logs).sum(dim=-1).mean()
    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        slope = ((logs * middle).softmax(dim=-1) * logs).sum(dim=-1).mean() - wanted
        low, high = (low, middle) if slope > 0 else (middle, high)
    return 2 / (low + high)


def reliability_bins(probabilities: Tensor, labels: Tensor) -> list[tuple[float, float, int]]:
    """Return the bins of a reliability diagram: 15 of equal width, without empty ones.

    Args:
        probabilities: Class probabilities.
        labels: True labels.

    Shape:
        probabilities: [N, J]; labels: [N].

    Returns:
        Mean confidence, accuracy and number of images of each bin.

    Example:
        >>> reliability_bins(torch.tensor([[0.75, 0.25], [0.25, 0.75]]), torch.tensor([0, 0]))
        [(0.75, 0.5, 2)]
    """
    confidence, predicted = probabilities.double().max(dim=1)  # [N]
    correct, bins = (predicted == labels).double(), bin_numbers(confidence)  # [N]
    members = [bins == number for number in bins.unique()]
    return [(float(confidence[here].mean()), float(correct[here].mean()), int(here.sum())) for here in members]
