"""The report of a run: one HTML page with its results and figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchcaps._files import figure_bytes, make_folder, write_bytes, write_text
from torchcaps.diagnostics import Snapshot, diagnose
from torchcaps.evaluation import Evaluation, findings
from torchcaps.report._metrics import metric_sections
from torchcaps.report._page import Section, page
from torchcaps.report.context import FigureContext
from torchcaps.report.registry import ENTRIES, FigureEntry, draw_figure
from torchcaps.types import Progress
from torchcaps.viz import inline_svg

if TYPE_CHECKING:
    from torchcaps.train import Run

# A decoder has learned something if its error is at most this fraction of that of the mean image.
LEARNED = 0.9


def write_report(run: Run, evaluation: Evaluation | None = None, *, progress: Progress | None = None) -> Path:
    """Write `report.html`, `diagnostics.json` and the figures into the folder of a run.

    The page contains its style and figures and loads nothing from outside.

    Args:
        run: A finished run.
        evaluation: Evaluation of the test split; by default the one that is stored.
        progress: Called with the numbers of diagnosed and of all images; the diagnostics take longest.

    Returns:
        The path of the page.

    Example:
        >>> from torchcaps.train import Run
        >>> write_report(Run.open("runs/NAME"))  # doctest: +SKIP
    """
    context = FigureContext(run, evaluation=evaluation)
    model, evaluation = context.model, context.evaluation
    diagnosis = diagnose(model, evaluation.data, progress=progress)
    context = FigureContext(run, evaluation=evaluation, diagnosis=diagnosis)
    make_folder(run.figures)
    sections = [_section(entry, context, run.figures / f"{entry.name}.png") for entry in report_entries(context)]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    facts = {
        **_headline(evaluation),
        "parameters": f"{parameters:,}",
        "minutes of training": f"{run.record['seconds'] / 60:.1f}",
    }
    notes: list[str] = []
    if model.is_classifier:
        notes = findings(evaluation.metrics, run.metrics())
        sections = [*metric_sections(evaluation.metrics), *sections]
    sections.append(_provenance(run, evaluation))
    title = f"{run.recipe.model.name} on {evaluation.data.name}"
    split = evaluation.data.split
    what = "held-out test set (not used for model selection)" if split == "test" else f"{split} split"
    lead = f"Trained with torchcaps. Evaluated on the {what}."
    path = run.path / "report.html"
    folded = {"Recipe": asdict(run.recipe), "Run": run.record}
    write_text(path, page(title, lead, facts, sections, _routing_tables(diagnosis), notes=notes, folded=folded))
    save_diagnosis(run, diagnosis)
    return path


def report_entries(context: FigureContext) -> list[FigureEntry]:
    """Return the figures that the report of a run contains or names as missing, in order."""
    return [entry for entry in ENTRIES if entry.in_report and _belongs(entry, context)]


def save_diagnosis(run: Run, diagnosis: Snapshot) -> Path:
    """Write routing diagnostics into the folder of a run as `diagnostics.json`.

    Args:
        run: The run.
        diagnosis: Routing diagnostics of its network.

    Returns:
        The file.

    Example:
        >>> save_diagnosis(run, snapshot)  # doctest: +SKIP
    """
    path = run.path / "diagnostics.json"
    write_text(path, json.dumps(diagnosis.to_json(), indent=2, allow_nan=False) + "\n")
    return path


def _belongs(entry: FigureEntry, context: FigureContext) -> bool:
    if entry.requires(context) is None:
        return True
    # A model without classes has few figures, and a page of missing ones says nothing about it.
    return context.model.is_classifier and not entry.model_specific


def _section(entry: FigureEntry, context: FigureContext, path: Path) -> Section:
    """Draw a figure into a file and a section, or give the reason why it is missing."""
    reason = entry.requires(context)
    if reason is not None:
        return Section(entry.title, f"Not available: {reason}.")
    untrained = entry.decodes and context.decoder_error > LEARNED
    if untrained and entry.name == "perturbations":
        return Section(entry.title, f"Not shown: {_untrained(context)}")
    drawn = draw_figure(entry.name, {"": context})
    write_bytes(path, figure_bytes(drawn.figure, "png"))
    caption = " ".join(filter(None, (drawn.caption, entry.look_for, _untrained(context) if untrained else "")))
    return Section(entry.title, caption, drawn.alt, svg=inline_svg(drawn.figure, entry.name, drawn.alt))


def _untrained(context: FigureContext) -> str:
    return (
        "The decoder has not learned to reconstruct the images: its squared error is "
        f"{context.decoder_error:.2f} times that of the mean image (loss.reconstruction is its weight in training)."
    )


def _routing_tables(diagnosis: Snapshot) -> dict[str, dict[str, Any]]:
    """Tabulate the statistics of all layers; those of single capsules are only in the file."""
    gradients = {"gradient norm": diagnosis.gradient_norms, "gradient coherence": diagnosis.gradient_coherence}
    if not diagnosis.layers:
        return {"Gradients": gradients} if diagnosis.gradient_norms else {}
    columns = ("router", "children", "parents", "entropy", "logit_change", "changed", "dead", "starved")
    layers = {layer["name"]: {key: layer[key] for key in columns} for layer in diagnosis.to_json()["layers"]}
    return {"Routing": {**layers, **gradients}}


def _provenance(run: Run, evaluation: Evaluation) -> Section:
    """State where the numbers come from; all of the recipe and the record follow, folded."""
    record = run.record
    counts = record.get("images") or {}
    images = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    versions = record.get("versions") or {}
    facts = {
        "data": f"{evaluation.data.name}: {record.get('origin', evaluation.data.origin)}",
        "images": images or None,
        "network": run.recipe.model.name,
        "seed": record.get("seed"),
        "trained": " to ".join(str(record[key]) for key in ("started", "finished") if key in record) or None,
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()) or None,
        "commit of torchcaps": record.get("commit"),
        "machine": _in_words(record.get("machine")),
    }
    return Section("Provenance", "", facts=facts)


def _in_words(machine: object) -> str | None:
    if not isinstance(machine, Mapping):
        return None if machine is None else str(machine)
    named = [machine.get(key) for key in ("processor", "accelerator", "system")]
    sizes = [f"{machine[key]} {name}" for key, name in (("cores", "cores"), ("memory_gib", "GiB")) if machine.get(key)]
    return ", ".join([*(str(name) for name in named if name), *sizes])


def _headline(evaluation: Evaluation) -> dict[str, str]:
    images = f"on {evaluation.count:,} test images"
    if evaluation.loss is not None:
        return {f"loss {images}": f"{evaluation.loss:.4g}"}
    values = evaluation.metrics.values
    facts = {f"accuracy {images}": f"{evaluation.accuracy:.2%}"}
    if (interval := values["accuracy"].interval) is not None:
        facts["95% interval of the accuracy"] = f"{interval[0]:.1%} to {interval[1]:.1%}"
    if (f1 := values["f1_macro"].value) is not None:
        facts["F1 (macro)"] = f"{f1:.2%}"
    if "ece" in values and (error := values["ece"].value) is not None:
        fitted = "not calibrated" if evaluation.temperature is None else f"temperature {evaluation.temperature:.3g}"
        facts[f"calibration error (ECE), {fitted}"] = f"{error:.4f}"
    return facts
