from __future__ import annotations

import torch

from torchcaps.evaluation import Metrics, compute_metrics, findings


def metrics(correct: int, count: int = 100, classes: int = 4, temperature: float | None = 1.0) -> Metrics:
    labels = torch.arange(count) % classes
    predicted = torch.where(torch.arange(count) < correct, labels, (labels + 1) % classes)
    activations = torch.nn.functional.one_hot(predicted, classes) * 0.5 + 0.2
    return compute_metrics(activations, labels, "abcd"[:classes], temperature=temperature, resamples=10)


def about(words: str, sentences: list[str]) -> bool:
    return any(words in sentence for sentence in sentences)


def test_good_results_need_one_sentence() -> None:
    found = findings(metrics(95), {"train_accuracy": [0.8, 0.97], "val_accuracy": [0.95, 0.94]})
    assert len(found) == 1
    assert "between 88.8% and 97.8%" in found[0]
    assert "25.0%" in found[0]


def test_chance_is_named() -> None:
    assert about("not clearly better", findings(metrics(28)))
    assert not about("not clearly better", findings(metrics(60)))


def test_overfitting_and_underfitting_are_named() -> None:
    over = findings(metrics(40), {"train_accuracy": [0.93], "val_accuracy": [0.32]})
    assert about("Overfitted: the accuracy is 93.0%", over)
    under = findings(metrics(40), {"train_accuracy": [0.35], "val_accuracy": [0.32]})
    assert about("Underfitted", under)
    assert not about("Overfitted", under)
    assert about("Underfitted", findings(metrics(40), {"train_accuracy": [0.35]}))


def test_rising_validation_accuracy_is_named() -> None:
    history = {"train_accuracy": [0.9, 0.9, 0.9], "val_accuracy": [0.7, 0.8, 0.9]}
    assert about("still rising", findings(metrics(90), history))
    history["val_accuracy"] = [0.7, 0.9, 0.8]
    assert not about("still rising", findings(metrics(90), history))


def test_several_labels_have_an_interval_and_no_baseline() -> None:
    labels = torch.tensor([[0, 1], [1, 2], [2, 3]])
    found = findings(compute_metrics(torch.rand(3, 4), labels, "abcd", resamples=10))
    assert about("95% interval", found)
    assert not about("most frequent", found)
