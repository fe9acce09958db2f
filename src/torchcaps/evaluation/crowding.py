"""The protocol `crowding`: whether two digits close together are both seen, identical ones and different ones.

A class capsule has one pose, so that the number of objects of its class can only be in what is decoded from it. Two
identical digits count as seen if the decoding of their class is closer to the image of both than to that of either one,
two different digits if each decoding is closer to its own digit than to the other and to both together; and if at least
half of the squared brightness is decoded, so that a blank or a blurred decoding counts as nothing seen.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.predictions import is_correct
from torchcaps.evaluation.protocols import PROTOCOLS, Curve, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.models import ImageModel
from torchcaps.types import Progress

# Edges of the ranges of distances, in pixels; a range holds distances in (low, high].
DISTANCES = (0, 3, 6, 9, 14)
# Largest squared error of a decoding, as a share of the squared brightness of what it shows.
EXPLAINED = 0.5
KINDS = ("identical", "different")


def range_name(low: int, high: int) -> str:
    """Return the name of a range of distances.

    Args:
        low: Lower edge, outside of the range.
        high: Upper edge.

    Returns:
        The name.

    Example:
        >>> range_name(0, 3)
        '1 to 3 pixels'
    """
    return f"{low + 1} to {high} pixels"


@torch.inference_mode()
def seen_pairs(
    model: ImageModel, data: ImageDataset, *, batch_size: int = 256, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Return which pairs are seen, with their distances.

    Args:
        model: A network with a decoder, in evaluation mode.
        data: Pairs of `crowded_digits`.
        batch_size: Number of images per batch.
        progress: Called with (done, total) after each batch.

    Shape:
        Each is [N].

    Returns:
        `seen`: whether both digits are in what is decoded; `predicted`: whether the labels are the most active classes,
        one for identical digits and two for different ones; `distance` and `identical` of each pair.
    """
    parts: list[dict[str, Tensor]] = []
    for batch in data.batches(batch_size):
        capsules = model(to_float(batch.images))
        assert batch.sources is not None
        decoded = torch.stack([model.decode(capsules, labels) for labels in batch.labels.unbind(1)], dim=1)
        same = batch.meta["identical"].bool()  # [B]
        shown = torch.cat([to_float(batch.sources), to_float(batch.images)[:, None]], dim=1)  # [B, 3, 1, H, W]
        # Distance of each decoding to the first digit, the second and both.
        errors = (decoded[:, :, None] - shown[:, None]).square().flatten(3).sum(dim=3)  # [B, 2, 3]
        # Which of the three each decoding shows; 3 if it shows none of them.
        nearest = errors.argmin(dim=2)  # [B, 2]
        power = shown.square().flatten(2).sum(dim=2).gather(1, nearest)  # [B, 2]
        nearest = nearest.where(errors.amin(dim=2) < EXPLAINED * power, 3)  # [B, 2]
        apart = (nearest == torch.tensor([0, 1])).all(dim=1)  # [B]
        first = capsules.activations.argmax(dim=1) == batch.labels[:, 0]  # [B]
        parts.append(
            {
                "seen": torch.where(same, nearest[:, 0] == 2, apart),
                "predicted": torch.where(same, first, is_correct(capsules.activations, batch.labels)),
                "distance": batch.meta["distance"],
                "identical": same,
            }
        )
        if progress is not None:
            progress(min(len(parts) * batch_size, len(data)), len(data))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def by_distance(model: ImageModel, pairs: ImageDataset, *, progress: Progress | None = None) -> ProtocolResult:
    """Measure over the distance of two digits how often both are seen.

    Args:
        model: A network with a decoder, trained on `crowded_digits`.
        pairs: Identical and different pairs.
        progress: Called with (done, total) after each batch.

    Returns:
        One row per kind of pairs and range of distances, with the share of pairs that are seen, and that are
        predicted; and the share of seen pairs at each distance as a curve.

    Raises:
        ConfigError: If the network has no decoder, or the images are no such pairs.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("crowded_digits", "test", source="digits").subset(range(40))
        >>> by_distance(create_model("capsnet_small"), few).columns
        ('both seen', 'predicted')
    """
    if model.decoder is None or "distance" not in pairs.meta:
        kind = type(model).__name__
        raise ConfigError(f"run: expected a network with a decoder on crowded_digits, got {kind} on '{pairs.name}'")
    was_training = model.training
    model.eval()
    try:
        found = seen_pairs(model, pairs, progress=progress)
    finally:
        model.train(was_training)
    rows, lines = [], {}
    for kind in KINDS:
        ours = found["identical"] == (kind == "identical")  # [N]
        ranges = [(f"{kind}, all", ours)]
        for low, high in pairwise(DISTANCES):
            here = ours & (found["distance"] > low) & (found["distance"] <= high)
            ranges.append((f"{kind}, {range_name(low, high)}", here))
        for name, chosen in ranges:
            if chosen.any():
                shares = tuple(float(found[what][chosen].float().mean()) for what in ("seen", "predicted"))
                rows.append(ProtocolRow(name, int(chosen.sum()), shares))
        lines[kind] = ours
    at = found["distance"].unique()
    curves = {
        kind: tuple(float(found["seen"][ours & (found["distance"] == d)].float().mean()) for d in at)
        for kind, ours in lines.items()
        if all((ours & (found["distance"] == d)).any() for d in at)
    }
    curve = Curve("both seen", "distance in pixels", tuple(map(float, at)), curves)
    question = "Are two digits close together both seen, identical and different ones?"
    columns = ("both seen", "predicted")
    return ProtocolResult("crowding", question, pairs.name, pairs.origin, columns, tuple(rows), curves=(curve,))


@PROTOCOLS.register("crowding")
def _crowding(run: TrainedRun, progress: Progress) -> ProtocolResult:
    if run.data_name != "crowded_digits":
        raise ConfigError(f"run: expected a run trained on crowded_digits, got '{run.data_name}'")
    return by_distance(run.load_model(), run.load_data("test"), progress=progress)
