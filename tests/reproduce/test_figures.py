from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.lines import Line2D

from torchcaps import ops
from torchcaps.data import DATASETS, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.eval import evaluate, withstand
from torchcaps.eval.pictures import clearest
from torchcaps.reproduce import figures
from torchcaps.reproduce.figures import FIGURES
from torchcaps.train import Run
from torchcaps.viz import Figure
from torchcaps.viz._style import WARM

Runs = dict[str, Run]
Draw = Callable[..., Figure]


@pytest.fixture
def make(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """A figure by name, of some of the runs, over a few images."""
    monkeypatch.setattr(figures, "IMAGES", 40)

    def call(name: str, *labels: str) -> Figure:
        figure = FIGURES[name]({label: runs[label] for label in labels})
        figure.canvas.draw()
        return figure

    return call


def points(line: Line2D) -> list[list[float]]:
    return np.asarray(line.get_xydata()).tolist()


def words(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_all_figures_of_the_papers_are_there() -> None:
    assert FIGURES.names() == [
        "affine_answers",
        "attacks",
        "logit_change",
        "overlays",
        "perturbations",
        "reconstructions",
        "training_loss",
        "vote_plane",
    ]


def test_reconstructions_of_the_first_run_with_a_decoder_and_one_label(make: Draw, runs: Runs) -> None:
    figure = make("reconstructions", "cnn", "pairs", "three")
    evaluation = evaluate(runs["three"].load_model(), runs["three"].load_data("test"))
    label, said = evaluation.labels, evaluation.predictions
    wrong = (~evaluation.right).nonzero().flatten()[0]
    # A wrong one is decoded from what was said and from what it is.
    triples = [f"({label[wrong]}, {said[wrong]}, {target[wrong]})" for target in (said, label)]
    texts = words(figure)
    assert triples == texts[8:10]
    colours = [text.get_color() == WARM for axes in figure.axes for text in axes.texts]
    assert colours == [text[1] != text[4] for text in texts]


def test_overlays_have_the_capsule_that_is_neither(make: Draw) -> None:
    texts = words(make("overlays", "three", "pairs"))
    assert any("*" in text for text in texts)
    assert all(text.count("\n") == 2 for text in texts)


def test_perturbations_move_sixteen_dimensions(make: Draw) -> None:
    (axes,) = make("perturbations", "cnn", "one", "three").axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(map(str, range(16)))
    assert len(axes.get_xticklabels()) == 11


def test_logits_change_as_in_a_longer_routing_of_the_same_votes(make: Draw, runs: Runs) -> None:
    figure = make("logit_change", "three", "cnn", "one")
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "three (trained with 3)",
        "one (trained with 1)",
    ]
    for number, label in enumerate(("three", "one")):
        model: Any = runs[label].load_model()
        images = to_float(runs[label].load_data("test").spread(40).images)
        with torch.no_grad():
            trace = ops.trace("dynamic", model.trace(images).votes, bias=model.head.bias, iters=10)
        change = trace.logits.diff(dim=0)  # [9, B, I, J]
        logits = (change - change.mean(dim=-1, keepdim=True)).abs().mean(dim=(1, 2, 3))
        coupling = trace.coupling.diff(dim=0).abs().mean(dim=(1, 2, 3))
        for axes, mean in zip(figure.axes, (logits, coupling), strict=True):
            wanted = [[r, pytest.approx(value, rel=1e-3)] for r, value in enumerate(mean.tolist(), start=2)]
            assert points(axes.lines[number]) == wanted


def test_training_loss_is_that_of_the_metrics(make: Draw, runs: Runs) -> None:
    figure = make("training_loss", "three", "one")
    (axes,) = figure.axes
    for line, label in zip(axes.lines, ("three", "one"), strict=True):
        loss = runs[label].metrics()["train_loss"]
        assert points(line) == [[1, loss[0]], [2, loss[1]]]
        assert f"{label}, at last {loss[1]:.4g}" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_epochs_without_a_loss_are_left_out(tmp_path: Path, runs: Runs) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("epoch,train_loss\n1,0.5\n2,nan\n3,0.25\n")
    run = Run(folder, runs["three"].recipe)
    (axes,) = FIGURES["training_loss"]({"broken": run}).axes
    assert points(axes.lines[0]) == [[1, 0.5], [3, 0.25]]
    (folder / "metrics.csv").write_text("epoch,train_loss\n1,nan\n")
    with pytest.raises(ConfigError, match=r"^training_loss: expected a run with epochs in metrics.csv, got broken$"):
        FIGURES["training_loss"]({"broken": run})


def test_affine_digits_with_the_answers_of_all_networks(
    make: Draw, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DATASETS, "_items", {k: v for k, v in DATASETS._items.items() if k != "affnist"})
    figure = make("affine_answers", "moved", "three", "moved cnn")
    data = load_data("affine_mnist", "test", source="digits").spread(40)
    told = [evaluate(runs[label].load_model(), data) for label in ("moved", "moved cnn")]
    right = torch.stack([each.right for each in told]).sum(dim=0)  # [N]
    headings = [axes.get_title("left") for axes in figure.axes if axes.get_title("left")]
    counts = [int((right == number).sum()) for number in (2, 1, 0)]
    names = ("All networks are right", "They differ", "All are wrong")
    of = "of 40 images of affine_mnist"
    assert headings == [f"{name} ({count} {of})" for name, count in zip(names, counts, strict=True) if count]
    texts = words(figure)
    shares = [f"{each.accuracy:.1%} {label}" for label, each in zip(("moved", "moved cnn"), told, strict=True)]
    bands = texts.count("label")
    assert [texts.count(share) for share in shares] == [bands, bands]
    # The last group: the first images that both get wrong, each with both answers.
    last = (right == 0).nonzero().flatten()[:8].tolist()
    wanted = []
    for place in last:
        wanted += [str(int(data.labels[place])), *(f"{int(each.predictions[place])} ✗" for each in told)]
    assert [text.get_text() for text in figure.axes[-1].texts][:-3] == wanted


def test_attacks_are_those_of_each_network(make: Draw, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "IMAGES", 4)
    figure = make("attacks", "three", "pairs", "cnn")
    assert figure.axes[0].get_ylabel() == "accuracy on the first 4 images"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["three", "cnn"]
    assert [axes.get_title("left") for axes in figure.axes[1:3]] == ["BIM, ten steps", "FGSM, towards another class"]
    model, data = runs["cnn"].load_model(), runs["cnn"].load_data("test").subset(range(4))
    rows = (withstand(model, data, method="bim"), withstand(model, data, method="fgsm", targeted=True))
    for axes, row in zip(figure.axes[1:3], rows, strict=True):
        assert points(axes.lines[1]) == [list(pair) for pair in zip(row.epsilons, row.accuracy, strict=True)]


def test_the_vote_plane_tells_what_routing_did(make: Draw, runs: Runs) -> None:
    figure = make("vote_plane", "cnn", "one", "three")
    model, data = runs["three"].load_model(), runs["three"].load_data("test").spread(40)
    place = clearest(evaluate(model, data))
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
        ("reconstructions", ["cnn", "pairs"], ["no decoder", "its images have 2 labels, not 1"]),
        ("overlays", ["three", "one"], ["its images have 1 label, not 2", "no decoder"]),
        ("perturbations", ["one"], ["this model has no decoder"]),
        ("logit_change", ["cnn"], ["no dynamic routing into the classes"]),
        ("affine_answers", ["cnn"], ["trained on 'digits', not on translated_mnist"]),
        ("attacks", ["pairs"], ["its images have 2 labels, not 1"]),
        ("vote_plane", ["cnn", "one"], ["this model has no routing", "its routing has one iteration"]),
    ],
)
def test_where_no_run_can_have_it_each_reason_is_named(
    name: str, labels: list[str], reasons: list[str], make: Draw
) -> None:
    parts = [rf"'{label}' \(.*{reason}\)" for label, reason in zip(labels, reasons, strict=True)]
    with pytest.raises(
        ConfigError, match=rf"^{name}: expected a run that it can be drawn from, got {', '.join(parts)}$"
    ):
        make(name, *labels)


def test_a_model_without_classes_cannot_be_attacked(runs: Runs) -> None:
    class Mute:
        def load_model(self):
            model = runs["cnn"].load_model()
            model.classifies = False
            return model

    with pytest.raises(ConfigError, match=r"got 'mute' \(this model has no classes\)$"):
        FIGURES["attacks"]({"mute": Mute()})  # pyright: ignore


@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"training_loss"}))
def test_no_runs_at_all(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: expected a run that it can be drawn from, got none$"):
        FIGURES[name]({})
