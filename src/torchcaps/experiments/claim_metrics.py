"""Metrics of the claims that the lectures make, computed from a finished run by its protocol."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torchcaps.evaluation import PROTOCOLS, ProtocolResult
from torchcaps.evaluation.crowding import DISTANCES, KINDS
from torchcaps.evaluation.crowding import range_name as pixels
from torchcaps.evaluation.protocols import bucket_name, by_overlap
from torchcaps.evaluation.view_angles import ANGLES
from torchcaps.evaluation.view_angles import range_name as degrees
from torchcaps.experiments.metrics import register_metric
from torchcaps.types import Progress

if TYPE_CHECKING:
    from torchcaps.train import Run

# Edges of the overlaps where digits may lie anywhere.
ALL_OVERLAPS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
SEEN = tuple(
    f"{kind}, both seen, {name}"
    for kind in KINDS
    for name in ("all", *(pixels(low, high) for low, high in pairwise(DISTANCES)))
)
ANGLE_COLUMNS = tuple(f"error, {degrees(low, high)}" for low, high in pairwise(ANGLES))
# Layers of the deepest network of which starvation is measured.
LAYERS = (*(f"layer {number}" for number in range(1, 6)), "classes")


@register_metric("picasso", "accuracy", "false wholes", "false wholes by reconstruction")
def _picasso(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy on whole images, and share of scrambled ones that count as wholes where 95 % of the whole ones do."""
    found = _first_column(PROTOCOLS["picasso"](run, progress), column=1)
    names = {"activation": "false wholes", "reconstruction": "false wholes by reconstruction"}
    wholes = {name: found[score] for score, name in names.items() if score in found}
    return {"accuracy": 100 * run.results["test_accuracy"], **wholes}


@register_metric("crowding", "predicted, identical", "predicted, different", *SEEN)
def _crowding(run: Run, progress: Progress) -> dict[str, float]:
    """Pairs of digits that are predicted, and that are seen in the decodings, by distance."""
    result = PROTOCOLS["crowding"](run, progress)
    seen, predicted = _first_column(result), _first_column(result, column=1)
    both = {f"{kind}, both seen, {name.removeprefix(f'{kind}, ')}": share for kind, name, share in _kinds(seen)}
    return {
        **{f"predicted, {kind}": predicted[f"{kind}, all"] for kind in KINDS},
        **{name: both[name] for name in SEEN if name in both},
    }


def _kinds(shares: dict[str, float]) -> list[tuple[str, str, float]]:
    return [(name.partition(",")[0], name, share) for name, share in shares.items()]


@register_metric(
    "overlap_curve",
    "error, both digits",
    *(f"error, {bucket_name(low, high)}" for low, high in pairwise(ALL_OVERLAPS)),
)
def _overlap_curve(run: Run, progress: Progress) -> dict[str, float]:
    """Share of pairs of which not both digits are predicted, over all overlaps from none to all."""
    result = by_overlap(run.load_model(), run.load_data("test"), edges=ALL_OVERLAPS, progress=progress)
    first, *buckets = result.rows
    errors = {f"error, {row.name}": 100 - 100 * row.accuracies[0] for row in buckets}
    return {"error, both digits": 100 - 100 * first.accuracies[0], **errors}


@register_metric("view_angles", "familiar error", "novel error", *ANGLE_COLUMNS)
def _view_angles(run: Run, progress: Progress) -> dict[str, float]:
    """Error on familiar and on new viewpoints, also by the angle to the nearest trained view."""
    found = _first_column(PROTOCOLS["view_angles"](run, progress))
    named = {"familiar error": found.pop("familiar"), "novel error": found.pop("novel")}
    return {**named, **{f"error, {name}": error for name, error in found.items()}}


@register_metric("binding", "both shapes correct", "ARI", "ARI by position")
def _binding(run: Run, progress: Progress) -> dict[str, float]:
    """Share of images with both shapes predicted, and 100 times the adjusted Rand index of network and control."""
    (ours, control) = PROTOCOLS["binding"](run, progress).rows
    index = {"ARI": 100 * ours.accuracies[0], "ARI by position": 100 * control.accuracies[0]}
    return {"both shapes correct": 100 * run.results["test_accuracy"], **index}


@register_metric(
    "parse_tree",
    "accuracy",
    *(f"{what}, {layer}" for what in ("coupling varies", "starved", "dead") for layer in LAYERS),
)
def _parse_tree(run: Run, progress: Progress) -> dict[str, float]:
    """Accuracy, and of each capsule layer how far coupling depends on the image, starved and dead capsules."""
    result = PROTOCOLS["parse_tree"](run, progress)
    columns = {}
    for place, what in enumerate(("coupling varies", "starved", "dead")):
        columns.update({f"{what}, {name}": share for name, share in _first_column(result, column=place).items()})
    return {"accuracy": 100 * run.results["test_accuracy"], **columns}


def _first_column(result: ProtocolResult, *, column: int = 0) -> dict[str, float]:
    """Return one column of a protocol in %, by row."""
    return {row.name: 100 * row.accuracies[column] for row in result.rows}
