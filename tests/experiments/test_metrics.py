from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.errors import ConfigError
from torchcaps.evaluation import PROTOCOLS, ProtocolResult, ProtocolRow, evaluate
from torchcaps.experiments import METRICS, is_lower_better, metrics
from torchcaps.train import Run

from .entries import finished_run

CNN = ("model.name=cnn_small", "model.options={}")


def compute(name, run):
    """Compute a metric and check the names and the order of its columns."""
    found = METRICS[name].compute(run, lambda done, total: None)
    assert [column for column in METRICS[name].columns if column in found] == list(found)
    assert all(0 <= value <= 100 for value in found.values())
    return found


def test_accuracy_and_error(tmp_path):
    run = finished_run(tmp_path, test_accuracy=0.9925)
    assert compute("accuracy", run) == {"accuracy": pytest.approx(99.25)}
    assert compute("error", run) == {"error": pytest.approx(0.75)}
    assert compute("none", run) == {}


def test_error_needs_a_classifier(tmp_path):
    run = finished_run(tmp_path, recipe="transforming_digits", test_loss=0.1)
    with raises_about(ConfigError, "run", "'transforming_autoencoder'"):
        compute("error", run)


def test_thirteen_crops(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.augment.crop=20", test_accuracy=0.5)
    found = compute("crops", run)
    assert found["error"] == 50
    assert 0 < found["error, 13 crops"] < 100


def test_errors_of_the_last_epoch(tmp_path, monkeypatch):
    run = finished_run(tmp_path)
    columns = {"train_accuracy": [0.25, 0.75], "val_accuracy": [0.5, 0.625]}
    monkeypatch.setattr(Run, "metrics", lambda run: columns)
    assert compute("held_out", run) == {"training error": 25, "held-out error": 37.5}
    for without in ({"train_accuracy": [0.5]}, {"train_accuracy": [0.5], "val_accuracy": [float("nan")]}):
        monkeypatch.setattr(Run, "metrics", lambda run, without=without: without)
        with raises_about(ConfigError, "run", "validation"):
            compute("held_out", run)


def test_crops_need_a_crop(tmp_path):
    with raises_about(ConfigError, "run", "data.augment.crop"):
        compute("crops", finished_run(tmp_path, test_accuracy=0.5))


def test_overlap(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.options.source=digits", recipe="multimnist")
    found = compute("overlap", run)
    assert list(found) == list(METRICS["overlap"].columns)
    assert found["both correct"] == pytest.approx(100 * evaluate(run.load_model(), run.load_data("test")).accuracy)


def test_affine(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.options.source=digits", recipe="translated_mnist")
    known, new = compute("affine", run)
    assert known == "accuracy on translated_mnist"
    assert new in ("accuracy on affnist", "accuracy on affine_mnist")


def test_viewpoints(tmp_path, monkeypatch):
    rows = (ProtocolRow("familiar azimuth", 10, (0.9,)), ProtocolRow("novel azimuth", 20, (0.75,)))
    findings = ProtocolResult("viewpoints", "?", "smallnorb", "here", ("accuracy",), rows)
    monkeypatch.setitem(PROTOCOLS._items, "viewpoints", lambda run, progress: findings)
    assert compute("viewpoints", finished_run(tmp_path)) == {
        "familiar error": pytest.approx(10),
        "novel error": pytest.approx(25),
    }


def test_pairs(tmp_path):
    run = finished_run(tmp_path, "model.name=cnn_avgpool", "model.options={}", test_accuracy=0.25)
    found = compute("pairs", run)
    assert found["accuracy on single digits"] == 25
    assert 0 <= found["both correct"] <= 100


@pytest.mark.parametrize(
    ("changes", "recipe", "words"),
    [
        (CNN, "digits", "got 'cnn_small' on 'digits'"),
        (
            ("model.name=cnn_avgpool", "model.options={}", "data.options.source=digits"),
            "multimnist",
            "got 'cnn_avgpool' on 'multimnist'",
        ),
    ],
)
def test_pairs_need_any_size_and_single_digits(tmp_path, changes, recipe, words):
    run = finished_run(tmp_path, *changes, recipe=recipe, test_accuracy=0.5)
    with raises_about(ConfigError, "run", words):
        compute("pairs", run)


def test_attacks(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "ATTACKED_IMAGES", 20)
    run = finished_run(tmp_path, *CNN)
    found = compute("attacks", run)
    assert list(found) == list(METRICS["attacks"].columns)
    few = run.load_data("test").subset(range(20))
    assert found["accuracy, no attack"] == pytest.approx(100 * evaluate(run.load_model(), few).accuracy)
    assert found["accuracy, BIM 0.2"] <= found["accuracy, no attack"]


@pytest.mark.parametrize(
    ("metric", "recipe", "changes"),
    [
        ("picasso", "digits", ()),
        ("crowding", "crowded_digits", ("data.options.source=digits",)),
        ("overlap_curve", "spread_multimnist", ("data.options.source=digits",)),
        ("binding", "overlapping_shapes", ("model.name=decoupled_net",)),
        ("parse_tree", "digits", ("model.name=stacked_capsnet", "model.options={depth = 5}")),
    ],
)
def test_metrics_of_the_claims(tmp_path, monkeypatch, metric, recipe, changes):
    monkeypatch.setattr("torchcaps.evaluation.binding.IMAGES", 20)
    run = finished_run(tmp_path, *changes, recipe=recipe, test_accuracy=0.5)
    first, *others = METRICS[metric].columns
    found = METRICS[metric].compute(run, lambda done, total: None)
    assert [first, *others] == list(found)
    assert all(-100 <= value <= 100 for value in found.values())
    if first in ("accuracy", "both shapes correct"):
        assert found[first] == 50


def test_view_angles(tmp_path, monkeypatch):
    rows = tuple(
        ProtocolRow(name, 10, (error,))
        for name, error in (("familiar", 0.1), ("novel", 0.5), ("up to 30°", 0.2), ("60° to 90°", 0.8))
    )
    findings = ProtocolResult("view_angles", "?", "coil20", "here", ("error",), rows)
    monkeypatch.setitem(PROTOCOLS._items, "view_angles", lambda run, progress: findings)
    assert compute("view_angles", finished_run(tmp_path)) == pytest.approx(
        {"familiar error": 10, "novel error": 50, "error, up to 30°": 20, "error, 60° to 90°": 80}
    )


def test_lower_is_better():
    lower = {"error", "false wholes", "starved, classes", "dead, layer 1", "error, overlap 0% to 10%"}
    columns = {column for metric in METRICS for column in METRICS[metric].columns}
    assert lower <= columns
    assert all(is_lower_better(column) for column in lower)
    assert not any(
        is_lower_better(column) for column in ("accuracy", "both correct", "ARI", "identical, both seen, all")
    )
