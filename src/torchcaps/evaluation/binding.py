"""The protocol `binding`: whether a network keeps two overlapping shapes apart, by phase or by class capsules.

The pixels of each image are divided into two groups, and the division is compared with the two shapes by the adjusted
Rand index: 1 if both are equal, 0 for a random division. Pixels that belong to none or to both shapes are left out, as
usual. Networks of phases, of angles or of plain features are divided by k-means over the unit vectors of their last
maps; a network with a decoder by the class whose decoding is brighter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.intervals import Interval, bootstrap_weights, percentiles
from torchcaps.evaluation.predictions import predict_labels
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.models import ImageModel, KuramotoNet
from torchcaps.models.synchrony_nets import Modulus
from torchcaps.nn import KuramotoConv2d
from torchcaps.types import Progress

# A pixel belongs to a shape if it is brighter than this there.
LIT = 0.25
STARTS, STEPS = 4, 12
IMAGES, RESAMPLES = 200, 1000


def adjusted_rand_index(groups: Tensor, truth: Tensor) -> float:
    """Return the adjusted Rand index of two divisions (Hubert and Arabie 1985).

    Args:
        groups: Group of each item.
        truth: True group of each item.

    Shape:
        groups, truth: [N], counted from 0.

    Returns:
        The index; 1 if both have a single group.

    Example:
        >>> adjusted_rand_index(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]))
        1.0
    """
    table = torch.zeros(int(groups.max()) + 1, int(truth.max()) + 1, dtype=torch.float64)
    table.index_put_((groups, truth), torch.ones(len(groups), dtype=torch.float64), accumulate=True)

    def pairs(counts: Tensor) -> float:
        return float((counts * (counts - 1)).sum() / 2)

    rows, columns, total = pairs(table.sum(1)), pairs(table.sum(0)), len(groups) * (len(groups) - 1) / 2
    expected, most = rows * columns / max(total, 1), (rows + columns) / 2
    return 1.0 if most == expected else (pairs(table) - expected) / (most - expected)


def two_groups(features: Tensor) -> Tensor:
    """Divide vectors into two groups by k-means, with the best of several fixed starts.

    Args:
        features: The vectors.

    Shape:
        features: [N, F]; returns [N].

    Returns:
        The groups, 0 or 1.
    """
    best, groups = float("inf"), torch.zeros(len(features), dtype=torch.int64)
    for start in range(STARTS):
        first = features[start * len(features) // STARTS]
        # The second centre is the vector that is furthest from the first.
        centres = torch.stack([first, features[(features - first).square().sum(1).argmax()]])  # [2, F]
        for _ in range(STEPS):
            members = F.one_hot(torch.cdist(features, centres).argmin(1), 2).to(features.dtype)  # [N, 2]
            centres = (members.T @ features) / members.sum(0).clamp(min=1)[:, None]  # [2, F]
        nearest = torch.cdist(features, centres).min(1)
        spread = float(nearest.values.square().sum())
        if spread < best:
            best, groups = spread, nearest.indices
    return groups


def binding_maps(model: ImageModel, images: Tensor) -> Tensor:
    """Return the vectors by which pixels are grouped, at the resolution of the images.

    Kuramoto oscillators and complex maps give the phase of each channel as a point of the unit circle. Other networks
    give the direction of their last features, without the length.

    Args:
        model: The network, in evaluation mode.
        images: Images.

    Shape:
        images: [B, C, H, W]; returns [B, F, H, W].

    Returns:
        The vectors.
    """
    seen: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # The input of the modulus are the complex maps.
        seen.append(inputs[0] if isinstance(module, Modulus) else output)

    last, dim = model.stem, 0
    if isinstance(model, KuramotoNet):
        last = cast(KuramotoConv2d, model.stem[-1].oscillators)
        dim = last.dim
    elif isinstance(model.stem, nn.Sequential) and isinstance(model.stem[-1], Modulus):
        last, dim = model.stem[-1], 2
    handle = last.register_forward_hook(keep)
    try:
        model.features(images)
    finally:
        handle.remove()
    maps = seen[0]  # [B, F, H', W']
    vectors = maps.unflatten(1, (-1, dim)) if dim else maps[:, None]  # [B, channels, dim, H', W']
    unit = F.normalize(vectors, dim=2).flatten(1, 2)
    return F.interpolate(unit, images.shape[-2:], mode="bilinear", align_corners=False)


@torch.inference_mode()
def divide_pixels(model: ImageModel, images: Tensor, lit: Sequence[Tensor]) -> list[Tensor]:
    """Divide the given pixels of each image into two groups.

    Args:
        model: The network, in evaluation mode.
        images: Images.
        lit: The pixels of each image, as booleans.

    Shape:
        images: [B, C, H, W]; lit: [H, W] each; returns [n] each, in the order of the pixels.

    Returns:
        The groups, 0 or 1.
    """
    if model.decoder is not None:
        capsules = model(images)
        classes = predict_labels(capsules.activations, 2)  # [B, 2]
        decoded = torch.stack([model.decode(capsules, each) for each in classes.unbind(1)], dim=1)  # [B, 2, C, H, W]
        brighter = decoded.mean(dim=2).argmax(dim=1)  # [B, H, W]
        return [groups[place] for groups, place in zip(brighter, lit, strict=True)]
    maps = binding_maps(model, images)  # [B, F, H, W]
    return [two_groups(each[:, place].T) for each, place in zip(maps, lit, strict=True)]


def by_position(lit: Tensor) -> Tensor:
    """Divide pixels into two groups by their places alone, the control of every division.

    Args:
        lit: The pixels.

    Shape:
        lit: [H, W]; returns [n].

    Returns:
        The groups, 0 or 1.
    """
    return two_groups(lit.nonzero().float())


def shape_pixels(sources: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pixels that belong to exactly one of two shapes, and to which.

    Args:
        sources: The two shapes alone, in [0, 1].

    Shape:
        sources: [2, C, H, W]; returns booleans [H, W] and groups [n].

    Returns:
        The pixels and their shapes.
    """
    one, other = (sources.amax(dim=1) > LIT).unbind(0)  # [H, W]
    lit = one ^ other
    return lit, other[lit].to(torch.int64)


def by_binding(model: ImageModel, data: ImageDataset, *, progress: Progress | None = None) -> ProtocolResult:
    """Score the division of overlapping shapes by the adjusted Rand index.

    Args:
        model: The network.
        data: Images of two shapes, with the shapes alone as `sources`.
        progress: Called with (done, total) after each batch.

    Returns:
        The mean index of the network and of a division by position alone, with bootstrap intervals over the images.

    Raises:
        ConfigError: If the images have no sources.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("overlapping_shapes", "test").subset(range(4))
        >>> [row.name for row in by_binding(create_model("kuramoto_net", num_classes=4), few).rows]
        ['phase', 'position']
    """
    scores: dict[str, list[float]] = {binding_kind(model): [], "position": []}
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    try:
        for batch in data.batches(100):
            if batch.sources is None:
                raise ConfigError(f"data: expected images with the two shapes alone, got '{data.name}'")
            known = [shape_pixels(to_float(pair)) for pair in batch.sources]
            divided = divide_pixels(model, to_float(batch.images.to(device)), [lit for lit, _ in known])
            for (lit, truth), groups in zip(known, divided, strict=True):
                scores[binding_kind(model)].append(adjusted_rand_index(groups.cpu(), truth))
                scores["position"].append(adjusted_rand_index(by_position(lit), truth))
            if progress is not None:
                progress(len(scores["position"]), len(data))
    finally:
        model.train(was_training)
    rows = tuple(
        ProtocolRow(name, len(values), (sum(values) / len(values),), (_interval(values),))
        for name, values in scores.items()
    )
    question = "Are two overlapping shapes kept apart? (adjusted Rand index)"
    return ProtocolResult("binding", question, data.name, data.origin, ("ARI",), rows, is_share=False)


def binding_kind(model: ImageModel) -> str:
    """Return by what a network divides pixels: `decodings` of two classes, `phase` or `angle`.

    Args:
        model: The network.

    Returns:
        The word.
    """
    if model.decoder is not None:
        return "decodings"
    complex_maps = isinstance(model.stem, nn.Sequential) and isinstance(model.stem[-1], Modulus)
    return "phase" if isinstance(model, KuramotoNet) or complex_maps else "angle"


def _interval(values: Sequence[float]) -> Interval:
    numbers = torch.tensor(values, dtype=torch.float64)  # [N]
    means = [weights @ numbers / weights.sum(1) for weights in bootstrap_weights(len(values), RESAMPLES)]
    found = percentiles(torch.cat(means))
    assert found is not None
    return found


@PROTOCOLS.register("binding")
def _binding(run: TrainedRun, progress: Progress) -> ProtocolResult:
    return by_binding(run.load_model(), run.load_data("test").evenly_spaced(IMAGES), progress=progress)
