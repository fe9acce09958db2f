from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest

from torchcaps.data import ImageDataset, InMemoryDataset
from torchcaps.diagnostics import diagnose
from torchcaps.evaluation import evaluate
from torchcaps.models import ImageModel, create_model
from torchcaps.report import write_report
from torchcaps.report.registry import ENTRIES
from torchcaps.train import Run

from .conftest import MemoryContext

HISTORY = {
    "epoch": [1, 2],
    "layer": ["head"] * 2,
    "iteration": [3] * 2,
    "measure": ["entropy"] * 2,
    "value": [0.9, 0.8],
}
NO_ROUTING = {**HISTORY, "measure": ["gradient_norm"] * 2}
EVIL = "<script>alert(1)</script>&\"'"


@dataclass(frozen=True)
class Named:
    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    model: Named
    seed: int = 3


@dataclass
class FinishedRun:
    """A run folder as the report sees one."""

    path: Path
    model: ImageModel
    data: ImageDataset
    recipe: Recipe = field(default_factory=lambda: Recipe(Named(EVIL, {"iters": 1})))
    history: dict[str, list[Any]] = field(default_factory=lambda: HISTORY)

    @property
    def record(self) -> dict[str, Any]:
        return {"seed": 3, "versions": {"torch": "2.13.0"}, "machine": EVIL, "seconds": 12.3456789}

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def metrics(self) -> dict[str, list[float]]:
        return {"epoch": [1.0, 2.0], "train_loss": [0.5, 0.4], "val_accuracy": [0.8, 0.9]}

    def diagnostics(self) -> dict[str, list[Any]]:
        return self.history

    @property
    def context(self) -> MemoryContext:
        return MemoryContext(self.model, self.data)


class Page(HTMLParser):
    """Everything in a page that could reach outside, and what a reader's software goes by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag
        if tag == "svg":
            self.images.append(dict(attrs))
        else:
            self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data: str) -> None:
        if self._inside in ("h1", "h2") and data.strip():
            self.headings.append(data)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: ImageModel, digits: ImageDataset) -> FinishedRun:
    names = (EVIL, *digits.class_names[1:])
    data = InMemoryDataset("digits", "test", digits.images, digits.labels, names, "tests")
    run = FinishedRun(tmp_path_factory.mktemp("run"), model, data)
    assert write_report(cast(Run, run)) == run.path / "report.html"
    return run


def test_page_is_self_contained(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    page = Page(text)
    assert page.links
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert "http" not in text.replace("http-equiv", "")
    assert not re.findall(r"url\((?!#)", text)
    assert "@import" not in text
    # The decoder of this network is not trained: its dimensions are not shown.
    assert len(page.images) == 9
    assert "Not shown: The decoder has not learned" in text


def test_figures_have_the_colours_and_fonts_of_the_page(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    dark = text[text.index("prefers-color-scheme: dark") :].partition("}")[0]
    for variable in ("--ink", "--muted", "--line", "--accent", "--warm", "--card"):
        assert f"{variable}:" in dark
    assert "fill: var(--ink)" in text
    assert "fill: #ffffff" not in text
    # Class names are texts, which the browser draws with its own fonts.
    assert ">9</text>" in text
    identifiers = re.findall(r' id="([^"]+)"', text)
    assert len(identifiers) == len(set(identifiers))


def test_alt_texts_and_headings(finished: FinishedRun) -> None:
    page = Page((finished.path / "report.html").read_text())
    assert all(len(image["aria-label"] or "") > 30 for image in page.images)
    assert page.tags.count("h1") == 1
    assert page.headings[1:13] == [
        "Classes",
        "Metrics",
        "Confusion matrix",
        "Worst errors",
        "Calibration",
        "Explanations",
        "Learning curves",
        "Reconstructions",
        "Dimensions of a class capsule",
        "Coupling over the routing iterations",
        "Routing diagnostics",
        "Routing diagnostics over the epochs",
    ]


def test_routing_table_and_file(finished: FinishedRun) -> None:
    diagnosis = diagnose(finished.model, finished.data).to_json()
    assert json.loads((finished.path / "diagnostics.json").read_text()) == diagnosis
    text = (finished.path / "report.html").read_text()
    assert ">Routing<" in text
    (layer,) = diagnosis["layers"]
    entropy = ", ".join(f"{value:.6g}" for value in layer["entropy"])
    assert f'<th scope="row">head.entropy</th><td>{entropy}</td>' in text
    assert f'<th scope="row">gradient norm.head</th><td>{diagnosis["gradient_norms"]["head"]:.6g}</td>' in text
    assert "head.share" not in text


def test_names_are_escaped(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;") >= 4


def test_provenance(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    for key, value in [
        ("model.options.iters", "1"),
        ("versions.torch", "2.13.0"),
        ("seed", "3"),
        ("seconds", "12.3457"),
    ]:
        assert f'<th scope="row">{key}</th><td>{value}</td>' in text


def test_provenance_is_not_folded(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    last = text[text.rindex("<h2>") : text.index("<details>")]
    assert last.startswith("<h2>Provenance</h2>")
    assert '<th scope="row">versions</th><td>torch 2.13.0</td>' in last
    assert '<th scope="row">data</th><td>digits: tests</td>' in last
    # Folded tables are printed, too.
    assert "details::details-content" in text.split("@media print")[1]


def test_accuracy(finished: FinishedRun) -> None:
    evaluation = evaluate(finished.model, finished.data)
    text = (finished.path / "report.html").read_text()
    assert f"<strong>{evaluation.accuracy:.2%}</strong> accuracy on 60 test images" in text
    low, high = evaluation.metrics.values["accuracy"].interval or (0, 0)
    assert f"<strong>{low:.1%} to {high:.1%}</strong>" in text
    assert "<li>The accuracy is between" in text


def test_classes_and_metrics(finished: FinishedRun) -> None:
    metrics = evaluate(finished.model, finished.data).metrics
    text = (finished.path / "report.html").read_text()
    assert f"<tr><td>F1 (macro)</td><td>{metrics.values['f1_macro'].value:.2%}</td>" in text
    row = metrics.per_class[3]
    assert f"<td>{row.support}</td><td>{row.predicted}</td><td>{row.precision:.2%}</td>" in text
    assert not re.search(r"\bnan\b", text.split("<main>")[1].split("<figure>")[0])


def test_recipe_and_record_are_folded(finished: FinishedRun) -> None:
    text = (finished.path / "report.html").read_text()
    assert "<details>\n<summary>Recipe</summary>" in text
    assert text.index("<summary>Run</summary>") > text.rindex("<h2>")


def test_each_figure_is_a_file_too(finished: FinishedRun) -> None:
    names = [entry.name for entry in ENTRIES if entry.in_report and not entry.model_specific]
    names[names.index("perturbations")] = "explanations"
    assert sorted(path.stem for path in finished.figures.iterdir()) == sorted(names)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in finished.figures.iterdir())


def test_missing_figures_are_named(tmp_path: Path, cnn: ImageModel, digits: ImageDataset) -> None:
    run = FinishedRun(tmp_path, cnn, digits, history=NO_ROUTING)
    evaluation = evaluate(cnn, digits.subset(range(10)))
    text = write_report(cast(Run, run), evaluation).read_text()
    assert len(Page(text).images) == 4
    assert text.count("Not available: the model has no decoder.") == 2
    assert text.count("Not available: the model has no routing layer.") == 3
    assert ">Routing<" not in text
    # Gradient norms exist without routing.
    norms = diagnose(cnn, evaluation.data).gradient_norms
    assert len(norms) > 2
    for name, norm in norms.items():
        assert f'<th scope="row">gradient norm.{name}</th><td>{norm:.6g}</td>' in text
    assert "on 10 test images" in text
    assert sorted(path.stem for path in run.figures.iterdir()) == ["confusion", "curves", "errors", "reliability"]


def test_run_without_diagnostics(tmp_path: Path, model: ImageModel, digits: ImageDataset) -> None:
    run = FinishedRun(tmp_path, model, digits, history={})
    text = write_report(cast(Run, run)).read_text()
    assert not (run.figures / "routing_curves.png").exists()
    assert text.count("Not available") == text.count("Not available: the run has no diagnostics.csv.") == 1


def test_model_without_classes(tmp_path: Path, digits: ImageDataset) -> None:
    run = FinishedRun(tmp_path, create_model("transforming_autoencoder").eval(), digits, history=NO_ROUTING)
    text = write_report(cast(Run, run)).read_text()
    assert sorted(path.stem for path in run.figures.iterdir()) == ["curves", "transformations"]
    assert "</strong> loss on 60 test images" in text
    assert ">Classes<" not in text
    assert "Not available" not in text


def test_oscillators_show_their_phases(tmp_path: Path, digits: ImageDataset) -> None:
    run = FinishedRun(tmp_path, create_model("kuramoto_net").eval(), digits, history=NO_ROUTING)
    text = write_report(cast(Run, run)).read_text()
    assert sorted(path.stem for path in run.figures.iterdir()) == [
        "confusion",
        "curves",
        "errors",
        "phases",
        "reliability",
    ]
    assert "Phases of the oscillators" in text
