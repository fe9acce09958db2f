"""Which fold each image belongs to."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.errors import ConfigError


def assign_folds(
    labels: Tensor,
    folds: int,
    *,
    groups: Sequence[object] | None = None,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
) -> Tensor:
    """Assign each image to a fold, such that every fold has the classes in about the same proportions.

    Without groups the numbers of images of a class differ by at most one between folds, and so do the sizes of the
    folds. Groups are assigned whole, the largest first, each to the fold in which its classes are rarest.

    Args:
        labels: Class index of each image.
        folds: Number of folds.
        groups: Group of each image; images of one group are in one fold.
        seed: Seed of the order of the images. Every machine and version gives the same folds.
        class_names: Names of the classes, for the error message.

    Shape:
        labels: [N]; returns [N].

    Returns:
        The fold of each image, from 0.

    Raises:
        ConfigError: If a class has fewer images, or groups, than there are folds.

    Example:
        >>> assign_folds(torch.tensor([0, 0, 0, 0, 1, 1]), 2).tolist()
        [1, 0, 1, 0, 1, 0]
        >>> assign_folds(torch.tensor([0, 0, 0, 0, 1, 1]), 2, groups="aabbab").tolist()
        [1, 1, 0, 0, 1, 0]
    """
    smallest, count = smallest_class(labels, groups)
    if count < folds:
        name = smallest if class_names is None else class_names[smallest]
        kind = "images" if groups is None else "groups"
        raise ConfigError(f"folds: expected at most {count}, the number of {kind} of class '{name}', got {folds}")
    # The one generator of Python that promises the same numbers in all future versions.
    uniform = random.Random(seed).random
    if groups is not None:
        return _assign_groups(labels, folds, groups, {group: uniform() for group in dict.fromkeys(groups)})
    order = torch.tensor([uniform() for _ in labels], dtype=torch.float64).argsort()  # [N]
    # Class after class, each continues where the one before ended.
    order = order[labels[order].argsort(stable=True)]  # [N]
    assigned = torch.empty_like(order)  # [N]
    assigned[order] = torch.arange(len(order)) % folds
    return assigned


def smallest_class(labels: Tensor, groups: Sequence[object] | None) -> tuple[int, int]:
    """Return the class with the fewest images, or groups, and their number; classes without images do not count."""
    counts = torch.bincount(labels)
    if groups is not None:
        pairs = dict.fromkeys(zip(labels.tolist(), groups, strict=True))
        counts = torch.bincount(torch.tensor([label for label, _ in pairs]))
    present = counts.nonzero().squeeze(1)
    smallest = int(present[counts[present].argmin()])
    return smallest, int(counts[smallest])


def _assign_groups(labels: Tensor, folds: int, groups: Sequence[object], ranks: dict[object, float]) -> Tensor:
    numbers = {group: number for number, group in enumerate(ranks)}
    members = torch.tensor([numbers[group] for group in groups])  # [N]
    counts = torch.zeros(len(ranks), int(labels.max()) + 1, dtype=torch.float64)  # [G, J]
    counts.index_put_((members, labels), torch.ones(len(labels), dtype=torch.float64), accumulate=True)
    shares = counts / counts.sum(0).clamp(min=1)  # [G, J]
    sizes = counts.sum(1)  # [G]
    chosen = torch.empty(len(ranks), dtype=torch.int64)  # [G]
    filled = torch.zeros(folds, counts.shape[1], dtype=torch.float64)  # [folds, J]
    for group in sorted(range(len(ranks)), key=lambda number: (-sizes[number].item(), list(ranks.values())[number])):
        # What the sum of squared shares would grow by; among equals the smallest fold.
        growth = (filled * shares[group]).sum(1) + 1e-9 * filled.sum(1)  # [folds]
        fold = int(growth.argmin())
        chosen[group] = fold
        filled[fold] += shares[group]
    return chosen[members]
