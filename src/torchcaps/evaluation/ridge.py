"""Ridge regression whose penalty is chosen by leave-one-out errors, and its R2 on other data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.errors import ShapeError

# Penalties that are tried, for features whose mean square is 1.
PENALTIES = tuple(10.0**power for power in range(-4, 5))


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge regression.

    Attributes:
        weight: Of the features as they are, [P, T].
        bias: [T].
        penalty: The chosen penalty.
    """

    weight: Tensor
    bias: Tensor
    penalty: float

    def __call__(self, features: Tensor) -> Tensor:
        """Return the predictions [N, T] for features [N, P]."""
        return features.double() @ self.weight + self.bias


def fit_ridge(features: Tensor, targets: Tensor, penalties: tuple[float, ...] = PENALTIES) -> Ridge:
    """Fit a ridge regression with a bias, which is not penalised.

    Features are centred and divided by their root mean square over all features. The penalty has the smallest
    leave-one-out error, which has a closed form: the residual of row i divided by 1 - h_ii, where h_ii is its leverage.

    Args:
        features: The features.
        targets: What is predicted.
        penalties: The penalties that are tried.

    Shape:
        features: [N, P]; targets: [N, T].

    Returns:
        The regression.

    Raises:
        ShapeError: If there are fewer than two rows, or features and targets differ in their number.

    Example:
        >>> x = torch.linspace(-1, 1, 20)[:, None]
        >>> round(float(fit_ridge(x, 3 * x + 1)(torch.tensor([[2.0]]))), 2)
        7.0
    """
    if features.dim() != 2 or targets.dim() != 2 or len(features) != len(targets) or len(features) < 2:
        raise ShapeError(
            f"features: expected [N, P] and targets [N, T] of at least two rows, got {tuple(features.shape)} and "
            f"{tuple(targets.shape)}"
        )
    x, y = features.double(), targets.double()
    mean, middle = x.mean(dim=0), y.mean(dim=0)  # [P], [T]
    # One scale for all: a feature of its own scale that is nearly always zero would count as much as any other.
    deviation = (x - mean).square().mean().sqrt().clamp(min=1e-12)
    left, values, right = torch.linalg.svd((x - mean) / deviation, full_matrices=False)  # [N, K], [K], [K, P]
    rotated = left.T @ (y - middle)  # [K, T]
    errors = []
    for penalty in penalties:
        kept = values**2 / (values**2 + penalty)  # [K]
        leverage = 1 / len(x) + (left**2 * kept).sum(dim=1)  # [N]
        residuals = (y - middle - left @ (kept[:, None] * rotated)) / (1 - leverage).clamp(min=1e-9)[:, None]
        errors.append(float(residuals.square().mean()))
    best = penalties[min(range(len(penalties)), key=errors.__getitem__)]
    weight = right.T @ ((values / (values**2 + best))[:, None] * rotated) / deviation  # [P, T]
    return Ridge(weight, middle - mean @ weight, best)
