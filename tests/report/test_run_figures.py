"""Figures of the papers, drawn from short trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.lines import Line2D

from raising import raises_about
from torchcaps import ops
from torchcaps.data import DATASETS, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import evaluate, evaluate_attack
from torchcaps.report import FigureContext, draw_figure
from torchcaps.report._examples import clearest_image
from torchcaps.report.figures import affine_predictions, attacks, logit_change
from torchcaps.report.registry import ENTRIES
from torchcaps.train import Run
from torchcaps.viz import Figure
from torchcaps.viz._style import WARM

from .conftest import MemoryContext

Runs = dict[str, Run]
Draw = Callable[..., Figure]


def draw_runs(name: str, runs: Runs) -> Figure:
    figure = draw_figure(name, {label: FigureContext(run) for label, run in runs.items()}).figure
    figure.canvas.draw()
    return figure


@pytest.fixture
def draw(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Draw a figure of some of the runs, over few images."""
    for module in (affine_predictions, attacks, logit_change):
        monkeypatch.setattr(module, "IMAGES", 40)
    return lambda name, *labels: draw_runs(name, {label: runs[label] for label in labels})


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_reconstructions(draw: Draw, runs: Runs) -> None:
    figure = draw("reconstructions", "cnn", "three")
    evaluation = evaluate(runs["three"].load_model(), runs["three"].load_data("test"))
    label, predicted = evaluation.labels, evaluation.predictions
    wrong = (~evaluation.correct).nonzero().flatten()[0]
    # A wrong image is decoded from its prediction and from its label.
    triples = [f"{label[wrong]}\n{predicted[wrong]}\n{target[wrong]}" for target in (predicted, label)]
    key = "label\nprediction\ndecoded class"
    assert texts_of(figure).count(key) == len(figure.axes)
    texts = [text for axes in figure.axes for text in axes.texts if text.get_text() != key]
    assert [text.get_text() for text in texts[8:10]] == triples
    for text in texts:
        shown, chosen, _ = text.get_text().split("\n")
        assert (text.get_color() == WARM) == (shown != chosen)


def test_reconstructions_of_pairs(draw: Draw) -> None:
    texts = texts_of(draw("reconstructions", "cnn", "pairs"))
    assert any("*" in text for text in texts)
    assert all(text.count("\n") == 2 for text in texts)


def test_perturbations(draw: Draw) -> None:
    (axes,) = draw("perturbations", "cnn", "one", "three").axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(map(str, range(1, 17)))
    assert len(axes.get_xticklabels()) == 11


def test_logit_change(draw: Draw, runs: Runs) -> None:
    figure = draw("logit_change", "three", "cnn", "one")
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "three (trained with 3)",
        "one (trained with 1)",
    ]
    for number, label in enumerate(("three", "one")):
        model: Any = runs[label].load_model()
        images = to_float(runs[label].load_data("test").evenly_spaced(40).images)
        with torch.no_grad():
            trace = ops.trace("dynamic", model.trace(images).votes, bias=model.head.bias, iters=10)
        change = trace.logits.diff(dim=0)  # [9, B, I, J]
        logits = (change - change.mean(dim=-1, keepdim=True)).abs().mean(dim=(1, 2, 3))
        coupling = trace.coupling.diff(dim=0).abs().mean(dim=(1, 2, 3))
        for axes, mean in zip(figure.axes, (logits, coupling), strict=True):
            expected = [[r, pytest.approx(value, rel=1e-3)] for r, value in enumerate(mean.tolist(), start=2)]
            assert points(axes.lines[number]) == expected


def test_training_loss(draw: Draw, runs: Runs) -> None:
    figure = draw("training_loss", "three", "one")
    (axes,) = figure.axes
    for line, label in zip(axes.lines, ("three", "one"), strict=True):
        loss = runs[label].metrics()["train_loss"]
        assert points(line) == [[1, loss[0]], [2, loss[1]]]
        assert f"{label}, last {loss[1]:.4g}" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_training_loss_skips_nan(tmp_path: Path, runs: Runs) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("epoch,train_loss\n1,0.5\n2,nan\n3,0.25\n")
    run = Run(folder, runs["three"].recipe)
    (axes,) = draw_runs("training_loss", {"broken": run}).axes
    assert points(axes.lines[0]) == [[1, 0.5], [3, 0.25]]
    (folder / "metrics.csv").write_text("epoch,train_loss\n1,nan\n")
    with raises_about(ConfigError, "training_loss", "'broken'", "metrics.csv"):
        draw_runs("training_loss", {"broken": run})


def test_affine_predictions(draw: Draw, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS, "_items", {k: v for k, v in DATASETS._items.items() if k != "affnist"})
    figure = draw("affine_predictions", "moved", "three", "moved cnn")
    data = load_data("affine_mnist", "test", source="digits").evenly_spaced(40)
    evaluations = [evaluate(runs[label].load_model(), data) for label in ("moved", "moved cnn")]
    correct = torch.stack([each.correct for each in evaluations]).sum(dim=0)  # [N]
    headings = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    counts = [int((correct == number).sum()) for number in (2, 1, 0)]
    names = ("All networks are correct", "Networks differ", "All networks are wrong")
    of = "of 40 images of affine_mnist"
    assert headings == [f"{name} ({count} {of})" for name, count in zip(names, counts, strict=True) if count]
    texts = texts_of(figure)
    shares = [f"{each.accuracy:.1%} {label}" for label, each in zip(("moved", "moved cnn"), evaluations, strict=True)]
    bands = texts.count("label")
    assert [texts.count(share) for share in shares] == [bands, bands]
    # The last group has the first images that both networks get wrong.
    last = (correct == 0).nonzero().flatten()[:8].tolist()
    expected = []
    for place in last:
        expected += [str(int(data.labels[place])), *(f"{int(each.predictions[place])} ✗" for each in evaluations)]
    assert [text.get_text() for text in figure.axes[-1].texts][:-3] == expected


def test_attacks(draw: Draw, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "IMAGES", 4)
    figure = draw("attacks", "three", "pairs", "cnn")
    assert figure.axes[0].get_ylabel() == "accuracy on the first 4 images"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["three", "cnn"]
    assert [axes.get_title("left") for axes in figure.axes[1:3]] == ["BIM, ten steps", "FGSM, targeted"]
    model, data = runs["cnn"].load_model(), runs["cnn"].load_data("test").subset(range(4))
    rows = (evaluate_attack(model, data, method="bim"), evaluate_attack(model, data, method="fgsm", targeted=True))
    for axes, row in zip(figure.axes[1:3], rows, strict=True):
        assert points(axes.lines[1]) == [list(pair) for pair in zip(row.epsilons, row.accuracy, strict=True)]


def test_vote_plane(draw: Draw, runs: Runs) -> None:
    figure = draw("vote_plane", "cnn", "one", "three")
    model, data = runs["three"].load_model(), runs["three"].load_data("test")
    place = clearest_image(evaluate(model, data))
    with torch.inference_mode():
        trace = model.trace(to_float(data.batch([place]).images))
    winner, second = trace.activations[-1, 0].topk(2).indices.tolist()
    for row, parent in ((0, winner), (2, second)):
        distance = (trace.votes[0, :, parent] - trace.poses[-1, 0, parent]).norm(dim=-1)  # [I]
        near = distance.topk(14, largest=False).indices
        coupling = trace.coupling[-1, 0, :, parent]
        title = figure.axes[row + 1].get_title("left")
        assert title.startswith(
            f"Class {parent}, iteration 3: activation {float(trace.activations[-1, 0, parent]):.2f}\n"
        )
        assert f"nearest tenth {float(coupling[near].median()):.3f}," in title
        assert "nearest tenth 0.100, farthest 0.100" in figure.axes[row].get_title("left")
        sizes = figure.axes[row + 1].collections[0].get_sizes()  # pyright: ignore[reportAttributeAccessIssue]
        assert sorted(sizes) == pytest.approx(sorted((300 * coupling).tolist()), rel=1e-4)
    assert float(trace.coupling[-1, 0, :, winner].max()) > 0.1


@pytest.mark.parametrize(
    ("name", "labels", "reasons"),
    [
        ("reconstructions", ["cnn", "one"], ["no decoder", "no decoder"]),
        ("logit_change", ["cnn"], ["no dynamic routing into the classes"]),
        ("affine_predictions", ["cnn"], ["the training data is 'digits'"]),
        ("attacks", ["pairs"], ["the images have 2 labels"]),
        ("vote_plane", ["cnn", "one"], ["no routing layer", "the routing has one iteration"]),
    ],
)
def test_reasons_of_every_run(name: str, labels: list[str], reasons: list[str], draw: Draw) -> None:
    with raises_about(ConfigError, name, *(f"'{label}'" for label in labels), *reasons):
        draw(name, *labels)


def test_attacks_need_a_classifier(runs: Runs) -> None:
    class Autoencoder:
        @property
        def context(self):
            model = runs["cnn"].load_model()
            model.is_classifier = False
            return MemoryContext(model, runs["cnn"].load_data("test"))

    with raises_about(ConfigError, "attacks", "'mute'", "no classifier"):
        draw_runs("attacks", {"mute": Autoencoder()})  # pyright: ignore


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_no_runs(entry) -> None:
    with raises_about(ConfigError, entry.name, "no runs"):
        draw_figure(entry.name, {})
