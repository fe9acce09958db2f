"""What the results of a training mean, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torchcaps.evaluation.metrics import Metrics

# Difference of training and validation accuracy from which a network counts as overfitted.
GAP = 0.1
# A network with less than this share of the accuracy between chance and 1 on its training images is underfitted.
LEARNED = 0.5


def findings(metrics: Metrics, history: Mapping[str, Sequence[float]] | None = None) -> list[str]:
    """State what the results of a classifier mean: interval, baseline, overfitting, what is missing.

    Args:
        metrics: Metrics on the test set.
        history: Metrics of every epoch, as `Run.metrics` returns them.

    Returns:
        The sentences, the most important first.

    Example:
        >>> import torch
        >>> from torchcaps.evaluation import compute_metrics
        >>> activations = torch.tensor([[0.9, 0.1], [0.2, 0.7], [0.8, 0.3]])
        >>> found = findings(compute_metrics(activations, torch.tensor([0, 1, 1]), ["a", "b"], temperature=1.0))
        >>> found[0]
        'The accuracy is between 20.8% and 93.9% (95% interval); always predicting the most frequent class gives 66.7%.'
    """
    return [*_level(metrics), *_fit(metrics, history or {}), *metrics.notes]


def _level(metrics: Metrics) -> Iterator[str]:
    interval = metrics.values["accuracy"].interval
    if interval is None:
        return
    level = f"The accuracy is between {interval[0]:.1%} and {interval[1]:.1%} (95% interval)"
    if metrics.majority is None:
        yield f"{level}."
        return
    yield f"{level}; always predicting the most frequent class gives {metrics.majority:.1%}."
    if interval[0] <= metrics.majority and sum(row.support > 0 for row in metrics.per_class) > 1:
        yield "The network is not clearly better than always predicting the most frequent class."


def _fit(metrics: Metrics, history: Mapping[str, Sequence[float]]) -> Iterator[str]:
    train, val = (history.get(f"{split}_accuracy", ()) for split in ("train", "val"))
    if not train:
        return
    chance = metrics.majority or 0.0
    if train[-1] < chance + LEARNED * (1 - chance):
        yield (
            f"Underfitted: the accuracy on the training images is {train[-1]:.1%}. Try more epochs (trainer.epochs), "
            "another learning rate (optim.lr), or a larger model."
        )
    elif val and train[-1] - val[-1] > GAP:
        yield (
            f"Overfitted: the accuracy is {train[-1]:.1%} on the training images and {val[-1]:.1%} on the validation "
            "images. Try more images, stronger augmentation (data.augment), or a smaller model."
        )
    if len(val) > 2 and val[-1] == max(val) > val[-2] > val[-3]:
        yield "The validation accuracy was still rising at the end: more epochs (trainer.epochs) may help."
