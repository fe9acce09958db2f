from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, load_data
from torchcaps.diagnostics import diagnose
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.evaluation import evaluate
from torchcaps.models import ImageModel, create_model
from torchcaps.report import CaptionedFigure, FigureContext, draw_figure
from torchcaps.report.registry import ENTRIES, FIGURES

from .conftest import MemoryContext

METRICS = {"epoch": [1.0], "train_loss": [0.5], "val_accuracy": [0.9]}
HISTORY = {
    "epoch": [1, 1, 2, 2],
    "layer": ["head"] * 4,
    "iteration": [1, 2, 1, 2],
    "measure": ["entropy"] * 4,
    "value": [1.0, 0.875, 1.0, 0.625],
}
SINGLE = [entry.name for entry in ENTRIES if not entry.compares_runs]
MODELS = {"transformations": "transforming_autoencoder", "phases": "kuramoto_net"}


@dataclasses.dataclass
class MemoryRun:
    """A run without a folder."""

    model: ImageModel
    data: ImageDataset
    values: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=lambda: METRICS)
    history: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=lambda: HISTORY)

    @property
    def context(self) -> MemoryContext:
        return MemoryContext(self.model, self.data)

    def metrics(self) -> Mapping[str, Sequence[float]]:
        return self.values

    def diagnostics(self) -> Mapping[str, Sequence[Any]]:
        return self.history


def context(model: ImageModel, data: ImageDataset, *, limit: int | None = None, diagnosis=None, **run) -> FigureContext:
    return FigureContext(MemoryRun(model, data, **run), limit=limit, diagnosis=diagnosis)  # pyright: ignore


def draw(name: str, model: ImageModel, data: ImageDataset, **options) -> CaptionedFigure:
    return draw_figure(name, {"run": context(model, data, **options)})


@pytest.mark.parametrize("name", SINGLE)
def test_every_figure_has_caption_and_alt_text(name: str, model: ImageModel, digits: ImageDataset) -> None:
    if name in MODELS:
        model = create_model(MODELS[name]).eval()
    drawn = draw(name, model, digits)
    drawn.figure.canvas.draw()
    assert drawn.figure.axes
    assert all(len(text) > 10 for text in (drawn.caption, drawn.alt))


@pytest.mark.parametrize("name", [name for name in SINGLE if name not in (*MODELS, "reliability", "errors")])
def test_every_figure_of_two_labels(name: str) -> None:
    data = load_data("multimnist", "test", source="digits").subset(range(0, 1000, 25))
    torch.manual_seed(0)
    model = create_model("capsnet_small", (1, 36, 36)).eval()
    drawn = draw(name, model, data)
    drawn.figure.canvas.draw()
    assert ("green" in drawn.caption) == (name == "reconstructions")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("reconstructions", "no decoder"),
        ("perturbations", "no decoder"),
        ("coupling", "no routing layer"),
        ("vote_plane", "no routing layer"),
        ("diagnostics", "no routing layer"),
        ("transformations", "no transforming auto-encoder"),
        ("phases", "no oscillators"),
    ],
)
def test_unavailable_figures(name: str, reason: str, cnn: ImageModel, digits: ImageDataset) -> None:
    assert reason in str(FIGURES[name].requires(context(cnn, digits)))
    with raises_about(ConfigError, name, "'run'", reason):
        draw(name, cnn, digits)


def test_model_without_classes(digits: ImageDataset) -> None:
    model = create_model("transforming_autoencoder").eval()
    with raises_about(ConfigError, "confusion", "no classifier"):
        draw("confusion", model, digits)
    assert "accuracy" not in draw("curves", model, digits, values={"epoch": [1.0], "val_loss": [0.5]}).caption


def test_unknown_figure(model: ImageModel, digits: ImageDataset) -> None:
    with raises_about(UnknownNameError, "'curve'", "'curves'"):
        draw("curve", model, digits)


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
def test_diagnostics_of_every_schedule(schedule: str, digits: ImageDataset) -> None:
    model = create_model("attention_capsnet_small", schedule=schedule)
    assert FIGURES["diagnostics"].requires(context(model, digits)) is None


def test_given_diagnosis_is_used(model: ImageModel, digits: ImageDataset) -> None:
    diagnosis = diagnose(model, digits, limit=3)
    assert draw("diagnostics", model, digits, diagnosis=diagnosis).caption.startswith("Statistics of 3 images")
    unknown = dataclasses.replace(diagnosis, layers=(dataclasses.replace(diagnosis.layers[0], changed=None),))
    assert "an unknown fraction" in draw("diagnostics", model, digits, diagnosis=unknown).caption


def test_routing_curves(model: ImageModel, digits: ImageDataset) -> None:
    drawn = draw("routing_curves", model, digits)
    assert "over 2 epochs" in drawn.alt
    assert drawn.alt.endswith("from 0.875 to 0.625.")
    with raises_about(ConfigError, "routing_curves", "diagnostics.csv"):
        draw("routing_curves", model, digits, history={})
    with raises_about(ConfigError, "routing_curves", "no routing layer"):
        draw("routing_curves", model, digits, history={**HISTORY, "measure": ["gradient_norm"] * 4})


def test_curves_need_no_model(digits: ImageDataset) -> None:
    # A model that cannot be loaded, as during training.
    assert draw("curves", None, digits).figure.axes  # pyright: ignore
    with raises_about(ConfigError, "curves", "metrics.csv"):
        draw("curves", None, digits, values={})  # pyright: ignore


def test_limit_and_cache(model: ImageModel, digits: ImageDataset) -> None:
    limited = context(model, digits, limit=5)
    assert limited.evaluation.count == 5
    assert limited.evaluation is limited.evaluation
    assert len(limited.test_data) == 60
    assert context(model, digits).evaluation.accuracy == evaluate(model, digits).accuracy


def test_first_run_that_can_have_the_figure(model: ImageModel, cnn: ImageModel, digits: ImageDataset) -> None:
    runs = {"cnn": context(cnn, digits), "capsules": context(model, digits)}
    assert draw_figure("perturbations", runs).figure.axes
    with raises_about(ConfigError, "perturbations", "no runs"):
        draw_figure("perturbations", {})
