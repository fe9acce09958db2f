"""Comparison of two networks on the same test images."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import ConfigError
from torchcaps.evaluation._cases import Cases
from torchcaps.evaluation.evaluate import Evaluation
from torchcaps.evaluation.intervals import Interval, bootstrap_weights, percentiles
from torchcaps.evaluation.metrics import RANK_CELLS, RANK_RESAMPLES, RESAMPLES

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class PairedDifference:
    """A metric of two networks on the same images.

    Attributes:
        first: Value of the first network.
        second: Value of the second network.
        difference: Second minus first; None if one of them is not defined.
        interval: Interval of 95 % of the difference, from bootstrap samples of the images. As in `compute_metrics`, it
            is from 200 of them for ROC-AUC and average precision, and None for very many images and classes.
    """

    first: float | None
    second: float | None
    difference: float | None
    interval: Interval | None


@dataclass(frozen=True)
class PairedTest:
    """Two networks on the same test images.

    Attributes:
        count: Number of images.
        only_first: Number of images that only the first network classifies correctly.
        only_second: Number of images that only the second network classifies correctly.
        p_value: Two-sided exact McNemar test that both are correct equally often.
        metrics: Metrics of both by name.
    """

    count: int
    only_first: int
    only_second: int
    p_value: float
    metrics: dict[str, PairedDifference]

    def verdict(self, first: str = "the first", second: str = "the second") -> str:
        """Return one sentence: whether the difference in accuracy means anything.

        Args:
            first: Name of the first network.
            second: Name of the second network.

        Returns:
            The sentence.
        """
        differ = self.only_first + self.only_second
        if not differ:
            return f"No difference: {first} and {second} are correct on the same images."
        found = self.metrics["accuracy"]
        points = f"{100 * (self.only_second - self.only_first) / self.count:+.2f} points"
        if found.interval is not None:
            points += f" (95 % interval {100 * found.interval[0]:+.2f} to {100 * found.interval[1]:+.2f})"
        test = f"exact McNemar test p = {self.p_value:.2g}, one of them alone is correct on {differ:,} images"
        better = second if self.only_second > self.only_first else first
        meaning = f"{better} is better" if self.p_value < SIGNIFICANT else "the difference may be chance"
        return f"{second} against {first}: {points}, {test}: {meaning}."

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary, with the verdict.
        """
        return {**asdict(self), "verdict": self.verdict()}


def compare_evaluations(
    first: Evaluation, second: Evaluation, *, resamples: int = RESAMPLES, seed: int = 0
) -> PairedTest:
    """Compare two networks on the same test images.

    The test is McNemar's, exact: of the images on which exactly one network is correct, each network has half by
    chance (McNemar 1947). It is about these two trained networks, not about other seeds of the same recipes.

    Args:
        first: Evaluation of one network.
        second: Evaluation of another one, on the same images.
        resamples: Number of bootstrap samples.
        seed: Seed of the bootstrap samples.

    Returns:
        The comparison.

    Raises:
        ConfigError: If the images are not the same, or a network does not classify.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> from torchcaps.evaluation import evaluate
        >>> few = load_data("digits", "test").subset(range(8))
        >>> one = evaluate(create_model("cnn_small"), few)
        >>> compare_evaluations(one, one).p_value
        1.0
    """
    about = [(item.data.name, item.data.split, item.count) for item in (first, second)]
    if about[0] != about[1] or not first.labels.equal(second.labels):
        raise ConfigError(f"second: expected the test images of the first ({_images(first)}), got {_images(second)}")
    if first.loss is not None or second.loss is not None:
        raise ConfigError("second: expected two classifiers, got a model with its own objective")
    one, two = first.correct, second.correct
    only_first, only_second = int((one & ~two).sum()), int((two & ~one).sum())
    metrics = _differences(first, second, resamples, seed)
    return PairedTest(first.count, only_first, only_second, mcnemar(only_first, only_second), metrics)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of the exact McNemar test.

    It is twice the binomial probability of at most min(b, c) of b + c cases at a chance of one half, at most 1.

    Args:
        only_first: Number of cases b in which only the first is correct.
        only_second: Number of cases c in which only the second is correct.

    Returns:
        The p-value.

    Example:
        >>> mcnemar(1, 5)
        0.21875
    """
    cases = only_first + only_second
    term = total = 1
    for chosen in range(1, min(only_first, only_second) + 1):
        term = term * (cases - chosen + 1) // chosen
        total += term
    # Integers of any size: no rounding before the division.
    return min(1.0, 2 * total / 2**cases)


def _differences(first: Evaluation, second: Evaluation, resamples: int, seed: int) -> dict[str, PairedDifference]:
    cases = [Cases(item.activations, item.labels, item.temperature) for item in (first, second)]
    samples: dict[str, list[Tensor]] = {}
    ranked = min(RANK_RESAMPLES, RANK_CELLS // (2 * first.activations.numel()))
    for weights in bootstrap_weights(first.count, resamples, seed):
        found = [case.by_count(weights) for case in cases]
        if ranked > 0:
            found = [{**each, **case.by_rank(weights[:ranked])} for each, case in zip(found, cases, strict=True)]
        ranked -= len(weights)
        for name in found[0]:
            samples.setdefault(name, []).append(found[1][name] - found[0][name])
    return {
        name: _difference(metric.value, second.metrics.values[name].value, samples.get(name))
        for name, metric in first.metrics.values.items()
    }


def _difference(first: float | None, second: float | None, samples: list[Tensor] | None) -> PairedDifference:
    if first is None or second is None:
        return PairedDifference(first, second, None, None)
    return PairedDifference(first, second, second - first, percentiles(torch.cat(samples)) if samples else None)


def _images(evaluation: Evaluation) -> str:
    return f"{evaluation.count:,} images of {evaluation.data.name}, {evaluation.data.split}"
