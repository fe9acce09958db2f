from __future__ import annotations

import pytest

from torchcaps.errors import ConfigError
from torchcaps.eval import PROTOCOLS, Finding, Findings, evaluate
from torchcaps.reproduce import MEASURES, measures

from .entries import finished_run

CNN = ("model.name=cnn_small", "model.options={}")


def ask(name, run):
    """What a measure finds; never a column that it does not name, and in their order."""
    found = MEASURES[name].ask(run, lambda done, total: None)
    assert [column for column in MEASURES[name].columns if column in found] == list(found)
    assert all(0 <= value <= 100 for value in found.values())
    return found


def test_accuracy_and_error_of_the_test_part(tmp_path):
    run = finished_run(tmp_path, test_accuracy=0.9925)
    assert ask("accuracy", run) == {"accuracy": pytest.approx(99.25)}
    assert ask("error", run) == {"error": pytest.approx(0.75)}
    assert ask("none", run) == {}


def test_a_network_without_classes_has_no_error(tmp_path):
    run = finished_run(tmp_path, recipe="transforming_digits", test_loss=0.1)
    with pytest.raises(ConfigError, match="run: expected a network that classifies, got 'transforming_autoencoder'"):
        ask("error", run)


def test_thirteen_crops(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.augment.crop=20", test_accuracy=0.5)
    found = ask("crops", run)
    assert found["error"] == 50
    assert 0 < found["error, 13 crops"] < 100


def test_crops_of_whole_images(tmp_path):
    with pytest.raises(ConfigError, match=r"run: expected one that trains on crops \(data\.augment\.crop\), got one"):
        ask("crops", finished_run(tmp_path, test_accuracy=0.5))


def test_pairs_by_their_overlap(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.options.source=digits", recipe="multimnist")
    found = ask("overlap", run)
    assert list(found) == list(MEASURES["overlap"].columns)
    assert found["both right"] == pytest.approx(100 * evaluate(run.load_model(), run.load_data("test")).accuracy)


def test_affine_digits_are_named_as_what_they_are(tmp_path):
    run = finished_run(tmp_path, *CNN, "data.options.source=digits", recipe="translated_mnist")
    known, new = ask("affine", run)
    assert known == "accuracy on translated_mnist"
    assert new in ("accuracy on affnist", "accuracy on affine_mnist")


def test_viewpoints_in_errors(tmp_path, monkeypatch):
    rows = (Finding("familiar azimuth", 10, (0.9,)), Finding("novel azimuth", 20, (0.75,)))
    findings = Findings("viewpoints", "?", "smallnorb", "here", ("accuracy",), rows)
    monkeypatch.setitem(PROTOCOLS._items, "viewpoints", lambda run, progress: findings)
    assert ask("viewpoints", finished_run(tmp_path)) == {
        "familiar error": pytest.approx(10),
        "novel error": pytest.approx(25),
    }


def test_pairs_to_a_network_that_was_shown_single_digits(tmp_path):
    run = finished_run(tmp_path, "model.name=cnn_avgpool", "model.options={}", test_accuracy=0.25)
    found = ask("pairs", run)
    assert found["accuracy on single digits"] == 25
    assert 0 <= found["both right"] <= 100


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
    with pytest.raises(ConfigError, match=rf"run: expected a network for images of any size, .*{words}"):
        ask("pairs", run)


def test_attacks(tmp_path, monkeypatch):
    monkeypatch.setattr(measures, "ATTACKED", 20)
    run = finished_run(tmp_path, *CNN)
    found = ask("attacks", run)
    assert list(found) == list(MEASURES["attacks"].columns)
    few = run.load_data("test").subset(range(20))
    assert found["accuracy, no attack"] == pytest.approx(100 * evaluate(run.load_model(), few).accuracy)
    assert found["accuracy, BIM 0.2"] <= found["accuracy, no attack"]
