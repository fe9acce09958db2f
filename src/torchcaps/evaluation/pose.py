"""The protocol `pose`: what the class capsules tell of viewpoint, shift and other factors, by ridge regression.

If pose and presence are separated, the pose of the true class predicts how the object is seen, and its activation does
not. R2 is 1 for perfect predictions and 0 for those of the class mean. The regression is fitted for each class on one
half of the test images and scored on the other; halves share no object where objects are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from torchcaps.data import ImageDataset, to_float
from torchcaps.data.transforms import affine, shift
from torchcaps.errors import ConfigError
from torchcaps.evaluation.factors import Factor, known_factors, with_known_factors
from torchcaps.evaluation.intervals import Interval, bootstrap_weights, percentiles
from torchcaps.evaluation.metrics import join_names
from torchcaps.evaluation.protocols import (
    PROTOCOLS,
    Curve,
    ProtocolResult,
    ProtocolRow,
    TrainedRun,
    affine_digits,
)
from torchcaps.evaluation.ridge import fit_ridge
from torchcaps.models import ImageModel
from torchcaps.types import Capsules, Progress

RESAMPLES = 1000
# Images of a class to fit on, and to score.
LEAST = 2
# Images of a curve.
CURVE_IMAGES = 200
# Amounts of each transformation of a curve; the one in the middle leaves the image as it is.
CURVES: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "rotation": ("degrees", (-30, -20, -10, 0, 10, 20, 30)),
    "shift": ("pixels to the right", (-3, -2, -1, 0, 1, 2, 3)),
    "scale": ("factor", (0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3)),
}


def by_pose(model: ImageModel, data: ImageDataset, *, progress: Progress | None = None) -> ProtocolResult:
    """Predict the known factors of images from their class capsules, and measure how poses move with the image.

    A network without capsules is measured by the features before its scores, and by the score of the class.

    Args:
        model: The network.
        data: Test images; those without known factors are transformed by known amounts.
        progress: Called with (done, total) after each batch.

    Returns:
        R2 of each factor, from the pose and from the activation of the true class, with bootstrap intervals over the
        scored images; and the curves of `equivariance`.

    Raises:
        ConfigError: If the data are no images or have two labels, the model does not classify, or no class has images
            in both halves.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(120))
        >>> [row.name for row in by_pose(create_model("capsnet_small"), few).rows]
        ['pose of the class (16)', 'activation of the class (1)']
    """
    if data.num_labels != 1 or not model.is_classifier:
        raise ConfigError(
            f"run: expected a classifier of images with one label, got {type(model).__name__} on '{data.name}'"
        )
    if len(data.image_shape) != 3:
        raise ConfigError(f"data: expected images, which can be turned, got {data.image_shape} of '{data.name}'")
    known = with_known_factors(data)
    factors = known_factors(known)
    if not factors:
        raise ConfigError(f"data: expected images that differ in a known factor, got {len(data)} of '{data.name}'")
    features = class_features(model, known, progress=progress)
    fitted = fit_half(known)
    left_out = too_few_images(known, fitted)
    count = int((~fitted & ~torch.isin(known.labels, torch.tensor(left_out, dtype=torch.int64))).sum())
    rows = []
    for name, values in features.items():
        scores = [probe(values, known, factor, fitted) for factor in factors]
        title = f"{name} ({values.shape[1]})"
        rows.append(ProtocolRow(title, count, tuple(r2 for r2, _ in scores), tuple(each for _, each in scores)))
    question = "How well do class capsules predict how an object is seen? (R2)"
    columns = tuple(factor.name for factor in factors)
    curves = equivariance(model, data.evenly_spaced(min(CURVE_IMAGES, len(data))))
    return ProtocolResult(
        "pose",
        question,
        data.name,
        known.origin,
        columns,
        tuple(rows),
        is_share=False,
        curves=curves,
        notes=tuple(_notes([data.class_names[label] for label in left_out], features, curves)),
    )


def _notes(left_out: Sequence[str], features: Iterable[str], curves: Iterable[Curve]) -> Iterator[str]:
    if left_out:
        yield f"Not measured, with fewer than two test images to fit on or to score: {join_names(left_out)}."
    presence = f"{_short(list(features)[1])}, relative"
    if any(presence not in curve.lines for curve in curves):
        yield f"The {presence} to that of the image as it is, is not defined: its mean is not positive."


def too_few_images(data: ImageDataset, fitted: Tensor) -> list[int]:
    """Return the classes that are not measured: those with fewer than two images to fit on, or to score.

    Args:
        data: The images.
        fitted: Which images the regression is fitted on, bool [N].

    Returns:
        The labels.
    """
    counts = [torch.bincount(data.labels[half], minlength=data.num_classes) for half in (fitted, ~fitted)]
    return (torch.stack(counts).min(dim=0).values < LEAST).nonzero().flatten().tolist()


def fit_half(data: ImageDataset) -> Tensor:
    """Return which images the regression is fitted on: of each class half of the objects, or every other image.

    Args:
        data: The images; `meta["instance"]` numbers the objects of each class.

    Returns:
        True for images to fit on, False for those to score on, [N].

    Example:
        >>> from torchcaps import load_data
        >>> fit_half(load_data("digits", "test").subset(range(40))).float().mean() > 0.4
        tensor(True)
    """
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for label in data.labels.unique():
        here = (data.labels == label).nonzero().squeeze(1)
        groups = data.meta["instance"][here] if "instance" in data.meta else torch.arange(len(here))
        _, ranks = groups.unique(return_inverse=True)
        chosen[here] = ranks % 2 == 0
    return chosen


def probe(features: Tensor, data: ImageDataset, factor: Factor, fitted: Tensor) -> tuple[float, Interval]:
    """Return R2 of a factor over all classes, and its bootstrap interval.

    R2 = 1 - sum of squared residuals / sum of squared deviations from the mean of the class, over the scored images.

    Args:
        features: Features [N, P] of the images.
        data: The images.
        factor: What is predicted.
        fitted: Which images the regression is fitted on, bool [N].

    Returns:
        R2, and the interval that holds 95 % of its bootstrap samples.

    Raises:
        ConfigError: If no class has at least two images of known factor in both halves.
    """
    targets, known = factor.targets(data)
    residuals, deviations = [], []
    for label in data.labels.unique():
        here = known & (data.labels == label)
        fit, score = (here & fitted).nonzero().squeeze(1), (here & ~fitted).nonzero().squeeze(1)
        if min(len(fit), len(score)) < LEAST:
            continue
        predicted = fit_ridge(features[fit], targets[fit])(features[score])  # [n, T]
        residuals.append((targets[score] - predicted).square().sum(dim=1))
        deviations.append((targets[score] - targets[score].mean(dim=0)).square().sum(dim=1))
    total = torch.cat(deviations) if deviations else torch.zeros(0)
    if not total.sum() > 0:
        raise ConfigError(
            f"data: expected classes with different values of {factor.name} in both halves, got {len(data)} images of "
            f"'{data.name}' (too few)"
        )
    missed = torch.cat(residuals)
    samples = [1 - (weights @ missed) / (weights @ total) for weights in bootstrap_weights(len(total), RESAMPLES)]
    interval = percentiles(torch.cat(samples))
    assert interval is not None
    return float(1 - missed.sum() / total.sum()), interval


@torch.inference_mode()
def class_features(
    model: ImageModel, data: ImageDataset, *, batch_size: int = 256, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Return pose and activation of the true class, or for a network without capsules its features and class scores.

    Args:
        model: The network.
        data: Images with one label.
        batch_size: Number of images per batch.
        progress: Called with (done, total) after each batch.

    Shape:
        Each is [N, P].

    Returns:
        The features by name.

    Raises:
        ConfigError: If a feature is not finite.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(4))
        >>> {name: tuple(x.shape) for name, x in class_features(create_model("cnn_small"), few).items()}
        {'features before the scores': (4, 64), 'score of the class': (4, 1)}
    """
    parts: list[dict[str, Tensor]] = []
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        for done, batch in enumerate(data.batches(batch_size)):
            parts.append(_features_of(model, to_float(batch.images.to(device)), batch.labels.to(device)))
            if progress is not None:
                progress(min((done + 1) * batch_size, len(data)), len(data))
    finally:
        model.train(was_training)
    found = {name: torch.cat([part[name] for part in parts]).double().cpu() for name in parts[0]}
    if not all(values.isfinite().all() for values in found.values()):
        raise ConfigError(f"model: expected finite features, got NaN or infinity for images of '{data.name}'")
    return found


def _features_of(model: ImageModel, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    seen: list[Tensor] = []
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1:]
    hooks = [module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for module in last]
    try:
        capsules = model(images)
    finally:
        for hook in hooks:
            hook.remove()
    assert isinstance(capsules, Capsules)
    rows = torch.arange(len(labels), device=labels.device)
    poses, activations = capsules.poses[rows, labels], capsules.activations[rows, labels]  # [B, D], [B]
    if poses.shape[1] > 1:
        return {"pose of the class": poses, "activation of the class": activations[:, None]}
    hidden = seen[-1].flatten(1) if seen else capsules.poses.flatten(1)
    return {"features before the scores": hidden, "score of the class": poses}


@torch.inference_mode()
def equivariance(model: ImageModel, data: ImageDataset) -> tuple[Curve, ...]:
    """Measure how pose and activation of the true class change while the image is transformed.

    `pose change` is the mean of |p(t) - p(0)| / |p(0)|, `activation` the mean activation divided by that of the image
    as it is; it is left out if the latter is not positive. If pose and presence are separated, the first grows and the
    second stays at 1.

    Args:
        model: The network.
        data: Images with one label.

    Returns:
        A curve for rotation, shift and scale.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(4))
        >>> [curve.name for curve in equivariance(create_model("capsnet_small"), few)]
        ['rotation', 'shift', 'scale']
    """
    device, was_training = next(model.parameters()).device, model.training
    batch = data.batch(torch.arange(len(data)))
    images, labels = to_float(batch.images.to(device)), batch.labels.to(device)
    model.eval()
    try:
        return tuple(_curve(model, name, images, labels) for name in CURVES)
    finally:
        model.train(was_training)


def _curve(model: ImageModel, name: str, images: Tensor, labels: Tensor) -> Curve:
    unit, amounts = CURVES[name]
    features = {t: _features_of(model, _TRANSFORMS[name](images, t), labels) for t in amounts}
    start, vector, presence = features[amounts[len(amounts) // 2]], *next(iter(features.values()))
    norm = start[vector].norm(dim=1).clamp(min=1e-12)  # [B]
    moved = [float(((features[t][vector] - start[vector]).norm(dim=1) / norm).mean()) for t in amounts]
    mean = start[presence].mean()
    lines = {f"change of the {_short(vector)}": tuple(moved)}
    # A dead class has no activation, and the scores of a network without capsules may be negative.
    if mean > 0:
        kept = [float(features[t][presence].mean() / mean) for t in amounts]
        lines[f"{_short(presence)}, relative"] = tuple(kept)
    return Curve(name, unit, tuple(float(t) for t in amounts), lines)


def _short(name: str) -> str:
    return name.split(" of the class")[0].split(" before")[0]


def _rotate(images: Tensor, degrees: float) -> Tensor:
    ones = images.new_ones(len(images))
    return affine(images, torch.deg2rad(degrees * ones), ones, 0 * ones)


def _shift(images: Tensor, pixels: float) -> Tensor:
    moves = torch.full((len(images),), int(pixels), device=images.device)
    return shift(images, torch.zeros_like(moves), moves)


def _scale(images: Tensor, factor: float) -> Tensor:
    ones = images.new_ones(len(images))
    return affine(images, 0 * ones, factor * ones, 0 * ones)


_TRANSFORMS: Mapping[str, Callable[[Tensor, float], Tensor]] = {"rotation": _rotate, "shift": _shift, "scale": _scale}


@PROTOCOLS.register("pose")
def _pose(run: TrainedRun, progress: Progress) -> ProtocolResult:
    data = run.load_data("test")
    if run.data_name == "translated_mnist":
        # More is known of affine digits than of shifted ones.
        data = affine_digits(run.data_options.get("source", "mnist"), real=False)
    return by_pose(run.load_model(), data, progress=progress)
