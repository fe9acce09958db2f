"""The protocol `view_angles`: errors on new viewpoints over the angle to the nearest viewpoint of the training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.data import ImageDataset
from torchcaps.errors import ConfigError
from torchcaps.evaluation.evaluate import evaluate
from torchcaps.evaluation.protocols import PROTOCOLS, Curve, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.models import ImageModel
from torchcaps.types import Progress

# Edges of the ranges of angles in degrees; a range holds angles in (low, high].
ANGLES = (0, 30, 60, 90)
SETS = ("eth80", "coil20")
SPLITS = ("train", "familiar", "novel")


def directions(data: ImageDataset) -> Tensor:
    """Return the directions from which images were taken, as unit vectors.

    Args:
        data: Images with `azimuth` in degrees and, unless all views are level, the polar angle from straight above.

    Shape:
        returns [N, 3].

    Returns:
        The directions.
    """
    azimuth = data.meta["azimuth"].double().clamp(min=0).deg2rad()  # [N]
    polar = data.meta.get("polar", torch.full_like(data.labels, 90)).double().deg2rad()  # [N]
    return torch.stack([polar.sin() * azimuth.cos(), polar.sin() * azimuth.sin(), polar.cos()], dim=1)


def nearest_angles(views: Tensor, known: Tensor) -> Tensor:
    """Return the angle of each direction to the nearest known one, in degrees.

    Args:
        views: Directions.
        known: Directions of the training.

    Shape:
        views: [N, 3]; known: [M, 3]; returns [N].

    Returns:
        The angles.

    Example:
        >>> nearest_angles(torch.tensor([[0.0, 1, 0]]), torch.tensor([[1.0, 0, 0], [0, 0, 1]]))
        tensor([90.])
    """
    return (views @ known.unique(dim=0).T).clamp(-1, 1).amax(dim=1).acos().rad2deg()


def by_angle(
    model: ImageModel,
    splits: Sequence[ImageDataset],
    *,
    progress: Progress | None = None,
) -> ProtocolResult:
    """Measure the error over the angle to the nearest viewpoint of the training.

    Args:
        model: The network.
        splits: The training split, and the test images from familiar and from new viewpoints.
        progress: Called with (done, total) after each batch.

    Returns:
        The error on familiar and on new viewpoints and in each range of angles, and a curve over the angle.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> splits = [load_data("coil20", split, viewpoint="azimuth") for split in SPLITS]  # doctest: +SKIP
        >>> by_angle(create_model("cnn_small", (1, 32, 32), 20), splits).rows[0].name  # doctest: +SKIP
        'familiar'
    """
    train, familiar, novel = splits
    wrong = ~evaluate(model, novel, progress=progress).correct  # [N]
    angles = nearest_angles(directions(novel), directions(train)).round()  # [N]
    rows = [
        ProtocolRow("familiar", len(familiar), (evaluate(model, familiar).error,)),
        ProtocolRow("novel", len(novel), (float(wrong.float().mean()),)),
    ]
    for low, high in pairwise(ANGLES):
        here = (angles > low) & (angles <= high)
        if here.any():
            rows.append(ProtocolRow(range_name(low, high), int(here.sum()), (float(wrong[here].float().mean()),)))
    at = angles.unique()
    line = tuple(float(wrong[angles == angle].float().mean()) for angle in at)
    curve = Curve("error", "degrees to the nearest trained view", tuple(map(float, at)), {"error": line})
    question = "How does the error grow with the angle to the nearest viewpoint of the training?"
    return ProtocolResult("view_angles", question, novel.name, novel.origin, ("error",), tuple(rows), curves=(curve,))


def range_name(low: int, high: int) -> str:
    """Return the name of a range of angles.

    Args:
        low: Lower edge, outside of the range.
        high: Upper edge.

    Returns:
        The name.

    Example:
        >>> range_name(0, 30)
        'up to 30°'
    """
    return f"{low}° to {high}°" if low else f"up to {high}°"


@PROTOCOLS.register("view_angles")
def _view_angles(run: TrainedRun, progress: Progress) -> ProtocolResult:
    if run.data_name not in SETS or "viewpoint" not in run.data_options:
        expected = f"expected a run trained on {' or '.join(SETS)} with the option viewpoint"
        raise ConfigError(f"run: {expected}, got '{run.data_name}'")
    splits = [run.load_data(split) for split in SPLITS]
    return by_angle(run.load_model(), splits, progress=progress)
