"""Cost formulas fitted to the measurements of `torchcaps bench scaling`, and what they predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchcaps.bench._case import Point
from torchcaps.bench.scaling import FAR, KERNEL, STRIDE

# What time and memory may be proportional to, besides a constant.
TERMS = ("votes", "pose entries", "couplings", "weights", "inputs")
# Memory has no term for the arithmetic of the votes.
MEMORY_TERMS = TERMS[1:]


@dataclass(frozen=True)
class Cost:
    """A linear formula of one quantity.

    Attributes:
        constant: Its value at size 0.
        factors: The factor of each term, by name; terms that are not needed are left out.
        error: Root mean square of the relative errors at the fitted points.
        worst: Largest relative error at the fitted points.
        far: Predicted over measured value at the far point, which is not fitted; None if it was not measured.
    """

    constant: float
    factors: dict[str, float]
    error: float
    worst: float
    far: float | None

    def __call__(self, sizes: Mapping[str, float]) -> float:
        """Return the predicted value for the terms of a layer."""
        return self.constant + sum(factor * sizes[name] for name, factor in self.factors.items())


def term_sizes(kind: str, point: Mapping[str, float]) -> dict[str, float]:
    """Return the size of each term of a layer.

    Args:
        kind: `dense`, `shared` or `conv`.
        point: The sizes of the layer.

    Returns:
        Multiplications of all votes, entries of all votes, couplings (pairs of child and parent), entries of the weight
        and of the children.
    """
    batch, parents = point["batch"], point["parents"]
    if kind == "conv":
        out = (point["grid"] - KERNEL) // STRIDE + 1
        window = KERNEL**2 * point["types"] * parents
        # The product of two 4x4 matrices.
        couplings, pose, work = batch * out**2 * window, 16, 64
        weights, inputs = window * 16, batch * point["grid"] ** 2 * point["types"] * 16
    else:
        pose = point["pose"]
        work = pose * pose / 2
        couplings = batch * point["children"] * parents
        weights = (1 if kind == "shared" else point["children"]) * parents * work
        inputs = batch * point["children"] * pose / 2
    return {
        "votes": couplings * work,
        "pose entries": couplings * pose,
        "couplings": couplings,
        "weights": weights,
        "inputs": inputs,
    }


def fit_costs(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Cost]]:
    """Fit time and memory of every layer kind and router.

    Factors are not negative, and the sum of squared relative errors is least.

    Args:
        rows: Rows of the measurement.

    Returns:
        Formulas of `seconds` and `mb` by kind and router; pairs with fewer than four measured points are left out.
    """
    pairs = dict.fromkeys((row["kind"], row["router"]) for row in rows)
    fitted = {}
    for kind, router in pairs:
        measured = [row for row in rows if (row["kind"], row["router"]) == (kind, router) and "error" not in row]
        near = [row for row in measured if row["point"] != FAR[kind]]
        far = next((row for row in measured if row["point"] == FAR[kind]), None)
        if len(near) >= 4:
            fitted[kind, router] = {
                "seconds": _fit(kind, near, far, "seconds", TERMS),
                "mb": _fit(kind, near, far, "mb", MEMORY_TERMS),
            }
    return fitted


def _fit(
    kind: str, near: Sequence[Mapping[str, Any]], far: Mapping[str, Any] | None, name: str, terms: Sequence[str]
) -> Cost:
    values = np.array([max(row[name], 1e-9) for row in near])  # [n]
    sizes = [term_sizes(kind, row["point"]) for row in near]
    columns = np.array([[1.0, *(size[term] for term in terms)] for size in sizes])  # [n, terms]
    # Memory below a megabyte is noise: it counts as one.
    scale = np.maximum(values, 1.0) if name == "mb" else values
    found = nonnegative_least_squares(columns / scale[:, None], values / scale)
    errors = np.abs(columns @ found - values) / scale
    cost = Cost(
        float(found[0]),
        {term: float(factor) for term, factor in zip(terms, found[1:], strict=True) if factor > 0},
        float(np.sqrt(np.mean(errors**2))),
        float(errors.max()),
        None,
    )
    if far is None:
        return cost
    ratio = cost(term_sizes(kind, far["point"])) / max(far[name], 1e-9)
    return Cost(cost.constant, cost.factors, cost.error, cost.worst, float(ratio))


def nonnegative_least_squares(matrix: NDArray[Any], target: NDArray[Any], sweeps: int = 20_000) -> NDArray[Any]:
    """Return the non-negative x that minimises |matrix x - target|, by descent along one coordinate after the other.

    Args:
        matrix: Coefficients.
        target: Right-hand side.
        sweeps: Largest number of passes over the coordinates.

    Shape:
        matrix: [n, m]; target: [n]; returns [m].

    Returns:
        The solution.

    Example:
        >>> nonnegative_least_squares(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 1.0])).round(3).tolist()
        [1.5, 0.0]
    """
    norms = np.linalg.norm(matrix, axis=0)
    norms[norms == 0] = 1.0
    scaled = matrix / norms
    gram, right = scaled.T @ scaled, scaled.T @ target
    found = np.zeros(matrix.shape[1])
    for _ in range(sweeps):
        before = found.copy()
        for place in range(len(found)):
            # The columns have length 1, except those that are 0.
            if gram[place, place] > 0:
                found[place] = max(0.0, found[place] + right[place] - gram[place] @ found)
        if np.abs(found - before).max() < 1e-12:
            break
    return found / norms


def largest(fits: Callable[[int], bool], limit: int = 10**7) -> int:
    """Return the largest whole number up to a limit for which a monotone condition holds; 0 if it never does.

    Args:
        fits: Whether a number is small enough.
        limit: The largest number to try.

    Returns:
        The number.

    Example:
        >>> largest(lambda number: number**2 <= 50)
        7
    """
    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    if high > limit:
        return limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def backbone_seconds(rows: Sequence[Mapping[str, Any]], side: int) -> float:
    """Return the seconds that the backbone takes for one image: measured, or by the number of pixels of the nearest."""
    nearest = min(rows, key=lambda row: abs(math.log(row["side"] / side)))
    return nearest["seconds"] / nearest["images"] * (side / nearest["side"]) ** 2


def class_layer(batch: int, children: int, classes: int) -> Point:
    """Return the sizes of a class layer: children of 8 and classes of 16.

    Args:
        batch: Size of the batch.
        children: Number of children.
        classes: Number of classes.

    Returns:
        The point.
    """
    return {"batch": batch, "children": children, "parents": classes, "pose": 16}
