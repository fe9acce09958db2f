"""Shuffled orders of sample indices that depend on a seed alone."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.counter_rng import permuted

# Longer orders are computed batch by batch instead of being stored.
MAX_STORED = 2**22


class Order(Protocol):
    """One pass over a data set: `order(start, stop)` gives the indices at these positions of the pass."""

    def __call__(self, start: int, stop: int, /) -> Tensor: ...


def shuffled_order(seed: int, size: int) -> Order:
    """Return a uniformly shuffled order of the indices 0 to size - 1.

    >>> order = shuffled_order(0, 5)
    >>> sorted(order(0, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    if size > MAX_STORED:
        return partial(_computed, seed, size)
    return partial(_stored, torch.randperm(size, generator=torch.Generator().manual_seed(seed)))


def balanced_order(seed: int, labels: Tensor) -> Order:
    """Return an order of as many indices as labels [N] in which all classes are equally frequent, up to one.

    Images of a rare class are repeated, and images of a frequent one left out, in turn.

    >>> labels = torch.tensor([0, 0, 0, 0, 0, 1])
    >>> labels[balanced_order(0, labels)(0, 6)].tolist().count(1)
    3
    """
    generator = torch.Generator().manual_seed(seed)
    classes = labels.unique()
    share = -(-len(labels) // len(classes))
    chosen = []
    for k in classes:
        members = (labels == k).nonzero().squeeze(1)  # [n]
        passes = [members[torch.randperm(len(members), generator=generator)] for _ in range(-(-share // len(members)))]
        chosen.append(torch.cat(passes)[:share])
    drawn = torch.cat(chosen)
    return partial(_stored, drawn[torch.randperm(len(drawn), generator=generator)][: len(labels)])


def _stored(indices: Tensor, start: int, stop: int) -> Tensor:
    return indices[start:stop]


def _computed(seed: int, size: int, start: int, stop: int) -> Tensor:
    return torch.from_numpy(permuted(seed, np.arange(start, stop), size))
