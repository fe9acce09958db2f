"""The protocol `adversarial`: how many attacked images are misclassified, and not rejected either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.adversarial import Method, attack, check_attack, other_classes
from torchcaps.evaluation.predictions import predict_labels
from torchcaps.evaluation.protocols import PROTOCOLS, ProtocolResult, ProtocolRow, TrainedRun
from torchcaps.evaluation.rejection import RATE, Rejection, novelty, novelty_of_data
from torchcaps.models import ImageModel
from torchcaps.types import Progress

# Attacked test images of the protocol, and most validation images that thresholds are chosen on.
IMAGES, VALIDATION = 300, 5000
# Largest change of a pixel on MNIST (Qin et al. 2020).
EPSILON = 0.3
COLUMNS = ("success", "rejected", "undetected")


def by_attack(
    model: ImageModel,
    data: ImageDataset,
    known: ImageDataset,
    *,
    methods: Sequence[Method] | None = None,
    epsilon: float = EPSILON,
    targeted: bool = False,
    rate: float = RATE,
    progress: Progress | None = None,
) -> ProtocolResult:
    """Attack images, and count how many are misclassified, rejected, and misclassified without being rejected.

    Each score of `novelty` has a threshold that rejects a share `rate` of the known images; `any score` rejects the
    same share with all scores together, as `torchcaps predict` does. The undetected rate is the share of all images
    whose attack succeeds and is not rejected (Qin et al. 2020). A targeted attack succeeds if its target is predicted.

    Args:
        model: The network.
        data: Images to attack, with one label each.
        known: Other images of the classes, to choose the thresholds on, such as the validation split.
        methods: The attacks; by default FGSM and PGD, and the reconstructive attack if the network has a decoder.
        epsilon: Largest change of a pixel, from 0 to 1.
        targeted: Whether to attack towards a random other class.
        rate: Share of the known images that a threshold rejects, at most.
        progress: Called with (done, total) after each attack of a batch.

    Returns:
        One row per attack and score; without an attack, `success` is the error, and `rejected` the share of false
        positives.

    Raises:
        ConfigError: If there are no images, images have two labels, or an attack does not fit the network.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> digits = load_data("digits", "test")
        >>> few, known, model = digits.subset(range(8)), digits.subset(range(8, 40)), create_model("cnn_small")
        >>> [row.name for row in by_attack(model, few, known, methods=["fgsm"]).rows][:3]
        ['no attack, activation', 'no attack, energy', 'no attack, any score']
    """
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
    if data.num_labels != 1:
        raise ConfigError(f"data: expected one label per image, got {data.num_labels} ({data.name})")
    if methods is None:
        methods = ("fgsm", "pgd") if model.decoder is None else ("fgsm", "pgd", "reconstructive")
    for method in methods:
        check_attack(method, (epsilon,), model)
    detectors = _detectors(novelty_of_data(model, known), rate)
    names: dict[str, Method | None] = {"no attack": None, **{method: method for method in methods}}
    counts = {f"{name}, {score}": torch.zeros(len(COLUMNS), dtype=torch.int64) for name in names for score in detectors}
    targets = other_classes(data) if targeted else data.labels  # [N]
    device, was_training = next(model.parameters()).device, model.training
    model.eval()
    done, total = 0, len(names) * len(data)
    try:
        for places in torch.arange(len(data)).split(100):
            images = to_float(data.batch(places).images.to(device))  # [B, C, H, W]
            labels, aims = data.labels[places].to(device), targets[places].to(device)  # [B]
            for name, method in names.items():
                changed = images
                if method is not None:
                    chosen = aims if targeted else None
                    changed = attack(model, images, labels, epsilon=epsilon, method=method, targets=chosen)
                with torch.inference_mode():
                    capsules = model(changed)
                    predicted = predict_labels(capsules.activations)  # [B]
                    scores = novelty(model, changed, capsules)
                success = predicted == aims if targeted else predicted != labels  # [B]
                for score, detector in detectors.items():
                    rejected = _rejects(detector, scores)  # [B]
                    counts[f"{name}, {score}"] += torch.stack([success, rejected, success & ~rejected]).sum(dim=1).cpu()
                done += len(places)
                if progress is not None:
                    progress(done, total)
    finally:
        model.train(was_training)
    rows = [ProtocolRow(name, len(data), tuple((each / len(data)).tolist())) for name, each in counts.items()]
    goal = "another class" if targeted else "any error"
    question = (
        f"How many images, changed by up to {epsilon:g} per pixel towards {goal}, are misclassified and pass "
        f"thresholds that reject {rate:.0%} of {len(known):,} other images of the classes?"
    )
    return ProtocolResult("adversarial", question, data.name, data.origin, COLUMNS, tuple(rows))


def _detectors(scores: Mapping[str, Tensor], rate: float) -> dict[str, Rejection]:
    alone = {name: Rejection.fit({name: scores[name]}, rate) for name in sorted(scores)}
    return {**alone, "any score": Rejection.fit(scores, rate)}


def _rejects(detector: Rejection, scores: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([scores[name] > limit for name, limit in detector.thresholds.items()]).any(dim=0)  # [B]


@PROTOCOLS.register("adversarial")
def _adversarial(
    run: TrainedRun,
    progress: Progress,
    *,
    attacks: str | Sequence[Method] | None = None,
    epsilon: float = EPSILON,
    targeted: bool = False,
    images: int = IMAGES,
) -> ProtocolResult:
    known, data = run.load_data("val"), run.load_data("test")
    if not len(known):
        raise ConfigError(
            f"run: expected a validation split, but '{known.name}' has none (thresholds are chosen on it)"
        )
    if isinstance(images, bool) or not isinstance(images, int) or images < 1:
        raise ConfigError(f"images: expected a count of at least 1, got {images!r}")
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)):
        raise ConfigError(f"epsilon: expected a number from 0 to 1, got {epsilon!r}")
    if not isinstance(targeted, bool):
        raise ConfigError(f"targeted: expected true or false, got {targeted!r}")
    words = attacks.split(",") if isinstance(attacks, str) else attacks
    return by_attack(
        run.load_model(),
        data.evenly_spaced(images),
        known.evenly_spaced(VALIDATION),
        methods=None if words is None else [cast(Method, str(word)) for word in words],
        epsilon=epsilon,
        targeted=targeted,
        progress=progress,
    )
