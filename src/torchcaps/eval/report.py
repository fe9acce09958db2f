"""The report of a run: one page that says how good the model is and shows what it learned."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps.eval._page import Section, page
from torchcaps.eval.diagnostics import Diagnosis, diagnose
from torchcaps.eval.evaluate import Evaluation, Progress, evaluate
from torchcaps.eval.pictures import OWN, Subject, draw, lacking

if TYPE_CHECKING:
    from torchcaps.models import ImageModel
    from torchcaps.train import Run

ORDER = ("curves", "confusion", "reconstructions", "perturbations", "coupling", "diagnostics", "routing_curves")


def sections_of(model: ImageModel) -> list[str]:
    """What stands in the report of a model: for one without classes, its curves and its own pictures alone."""
    own = [what for what in OWN if lacking(what, model) is None]
    return [*(ORDER if model.classifies else ("curves",)), *own]


def report(run: Run, evaluation: Evaluation | None = None, *, progress: Progress | None = None) -> Path:
    """Write `report.html`, `evaluation.json`, `diagnostics.json` and the pictures into a run folder; where the page is.

    Without an `evaluation` the model is tested on the run's test part first. The page needs nothing outside itself.
    `progress(done, total)` tells how far the look at the routing is, which takes longest.
    """
    model = run.load_model()
    if evaluation is None:
        evaluation = evaluate(model, run.load_data("test"))
    diagnosis = diagnose(model, evaluation.data, progress=progress)
    subject = Subject(model, evaluation, run.metrics(), diagnosis, run.diagnostics())
    run.pictures.mkdir(exist_ok=True)
    # An older run kept nothing of its routing while it was trained.
    parts = [what for what in sections_of(model) if what != "routing_curves" or subject.history]
    sections = [_make(what, subject, run.pictures / f"{what}.png") for what in parts]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    facts = {
        **_numbers(evaluation),
        "parameters": f"{parameters:,}",
        "minutes of training": f"{run.record['seconds'] / 60:.1f}",
    }
    tables = {**_routing_tables(diagnosis), "Recipe": asdict(run.recipe), "Run": run.record}
    if model.classifies:
        shares = {name: _percent(share) for name, share in evaluation.per_class.items()}
        tables = {"Accuracy by class": shares, **tables}
    title = f"{run.recipe.model.name} on {evaluation.data.name}"
    lead = f"Trained by torchcaps; tested on the {evaluation.data.split} part, which no choice was made on."
    path = run.path / "report.html"
    path.write_text(page(title, lead, facts, sections, tables), encoding="utf-8")
    save_evaluation(run, evaluation)
    save_diagnosis(run, diagnosis)
    return path


def save_evaluation(run: Run, evaluation: Evaluation) -> Path:
    """Write the summary of an evaluation into the run folder as `evaluation.json`."""
    path = run.path / "evaluation.json"
    path.write_text(json.dumps(evaluation.summary(), indent=2) + "\n", encoding="utf-8")
    return path


def save_diagnosis(run: Run, diagnosis: Diagnosis) -> Path:
    """Write a diagnosis into the run folder as `diagnostics.json`."""
    path = run.path / "diagnostics.json"
    path.write_text(json.dumps(diagnosis.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def _routing_tables(diagnosis: Diagnosis) -> dict[str, dict[str, Any]]:
    """One table for all routing layers and the gradients; what stands for each capsule is in the file alone."""
    if not diagnosis.layers:
        return {"Gradients": {"gradient norm": diagnosis.gradient_norms}} if diagnosis.gradient_norms else {}
    kept = ("router", "children", "parents", "entropy", "logit_change", "changed", "dead", "starved")
    layers = {layer["name"]: {key: layer[key] for key in kept} for layer in diagnosis.to_json()["layers"]}
    return {"Routing": {**layers, "gradient norm": diagnosis.gradient_norms}}


def _make(what: str, subject: Subject, path: Path) -> Section:
    """One section of the page, and its picture as a file of its own."""
    reason = lacking(what, subject.model)
    if reason is not None:
        return Section(what.replace("_", " ").capitalize(), f"Left out: {reason}.")
    picture = draw(what, subject)
    buffer = io.BytesIO()
    picture.figure.savefig(buffer, format="png")
    path.write_bytes(buffer.getvalue())
    return Section(picture.title, picture.caption, picture.alt, buffer.getvalue())


def _numbers(evaluation: Evaluation) -> dict[str, str]:
    on = f"on {evaluation.count:,} held-out images"
    if evaluation.loss is not None:
        return {f"loss {on}": f"{evaluation.loss:.4g}"}
    return {f"accuracy {on}": f"{evaluation.accuracy:.2%}", "error": f"{evaluation.error:.2%}"}


def _percent(share: float | None) -> Any:
    return "no images" if share is None else f"{share:.2%}"
