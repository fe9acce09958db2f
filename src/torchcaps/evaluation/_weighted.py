"""Metrics of weighted images, for many sets of weights at once: NaN where a metric is not defined."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 15


class Counts(NamedTuple):
    """Weighted counts by class: correct predictions, images, predictions [R, J], and all images [R]."""

    hits: Tensor
    support: Tensor
    predicted: Tensor
    total: Tensor

    @classmethod
    def of(cls, targets: Tensor, predicted: Tensor, weights: Tensor) -> Counts:
        """Count classes of images, targets and predicted [N, J], with weights [R, N]."""
        columns = (targets & predicted, targets, predicted)
        hits, support, predictions = (weights @ column.to(weights.dtype) for column in columns)  # [R, J]
        return cls(hits, support, predictions, weights.sum(dim=1))

    @property
    def precision(self) -> Tensor:
        """Share of correct predictions [R, J]; 0 for a class without predictions, NaN without images."""
        return self._with_images(self.hits / self.predicted.clamp(min=1))

    @property
    def recall(self) -> Tensor:
        """Share of images that are found [R, J]."""
        return self._with_images(self.hits / self.support.clamp(min=1))

    @property
    def f1(self) -> Tensor:
        """Harmonic mean of precision and recall [R, J]."""
        return self._with_images(2 * self.hits / (self.support + self.predicted).clamp(min=1))

    def averages(self) -> dict[str, Tensor]:
        """Return precision, recall and F1, each as mean over the classes and weighted by their images [R]."""
        found = {}
        for name in ("precision", "recall", "f1"):
            values = getattr(self, name)  # [R, J]
            found[f"{name}_macro"] = mean_defined(values)
            found[f"{name}_weighted"] = (values.nan_to_num() * self.support).sum(dim=1) / self.support.sum(dim=1)
        return found

    def agreement(self) -> dict[str, Tensor]:
        """Return Cohen's kappa and the Matthews correlation (Gorodkin 2004) of single labels [R]."""
        correct, total = self.hits.sum(dim=1), self.total
        chance = (self.support * self.predicted).sum(dim=1)
        labels, predictions = (total**2 - column.square().sum(dim=1) for column in (self.support, self.predicted))
        above = correct * total - chance
        return {"kappa": _divide(above, total**2 - chance), "mcc": _divide(above, (labels * predictions).sqrt())}

    def _with_images(self, values: Tensor) -> Tensor:
        return torch.where(self.support > 0, values, torch.nan)


def mean_defined(values: Tensor) -> Tensor:
    """Return the mean over the classes for which values [R, J] are not NaN."""
    return values.nanmean(dim=1)


def rank_metrics(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return area under the ROC curve and average precision [R] of scores [N] for boolean targets [N].

    The area is the probability that a positive image has the higher score than a negative one, ties counting half. The
    average precision is the sum of precisions at each threshold, weighted by the gain of recall.
    """
    order = scores.argsort(descending=True)
    sorted_scores, positive = scores[order], targets[order].to(weights.dtype)  # [N]
    # A threshold lies after the last of equal scores.
    ends = torch.cat([sorted_scores[1:] != sorted_scores[:-1], torch.tensor([True])]).nonzero().squeeze(1)  # [G]
    ordered = weights[:, order]  # [R, N]
    above = ordered.cumsum(dim=1)[:, ends]  # [R, G]
    true = (ordered * positive).cumsum(dim=1)[:, ends]  # [R, G]
    false = above - true  # [R, G]
    zero = torch.zeros(len(weights), 1, dtype=weights.dtype)
    new_true, new_false = true.diff(dim=1, prepend=zero), false.diff(dim=1, prepend=zero)  # [R, G]
    positives, negatives = true[:, -1], false[:, -1]  # [R]
    below = negatives[:, None] - false + new_false / 2  # [R, G]
    area = _divide((new_true * below).sum(dim=1), positives * negatives)
    precision = _divide((new_true * true / above.clamp(min=1)).sum(dim=1), positives)
    return area, precision


def calibration_error(confidence: Tensor, correct: Tensor, weights: Tensor) -> Tensor:
    """Return the expected calibration error [R] over 15 bins of equal width (Naeini et al. 2015)."""
    bins = bin_numbers(confidence)  # [N]
    member = torch.nn.functional.one_hot(bins, BINS).to(weights.dtype)  # [N, bins]
    gap = weights @ (member * (confidence - correct.to(weights.dtype)).unsqueeze(1))  # [R, bins]
    return gap.abs().sum(dim=1) / weights.sum(dim=1)


def bin_numbers(confidence: Tensor) -> Tensor:
    """Return the bin of each confidence, from 0 to 14."""
    edges = torch.linspace(0, 1, BINS + 1, dtype=confidence.dtype)
    return (torch.bucketize(confidence, edges, right=True) - 1).clamp(0, BINS - 1)


def _divide(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / below, torch.nan)
