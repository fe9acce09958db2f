"""Adversarial attacks: the fast gradient sign method and its iterated form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from torchcaps.data import ImageDataset, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation.predictions import predict_labels
from torchcaps.models import ImageModel
from torchcaps.types import Progress

Method = Literal["fgsm", "bim"]

# Steps of the iterated method, all of the same size (Kurakin et al. 2017).
BIM_STEPS = 10
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True)
class Robustness:
    """Result of one attack on a network, one value per epsilon.

    Attributes:
        method: The attack.
        targeted: Whether the attack has a target class.
        epsilons: Largest change of a pixel.
        accuracy: Share of the attacked images that are classified correctly.
        attack_success_rate: Share of images classified as the target; None for an untargeted attack.
        count: Number of images.
    """

    method: Method
    targeted: bool
    epsilons: tuple[float, ...]
    accuracy: tuple[float, ...]
    attack_success_rate: tuple[float, ...] | None
    count: int

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            A dictionary.
        """
        return asdict(self)


def attack(
    model: ImageModel,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    method: Method = "fgsm",
    targets: Tensor | None = None,
) -> Tensor:
    """Perturb images by at most epsilon per pixel, against their label or towards a target.

    FGSM is x + epsilon sign(grad L) with L = -ln(a_label / sum_j a_j) (Goodfellow et al. 2015); with targets it is
    x - epsilon sign(grad L) with L of the target. BIM takes ten equal steps (Kurakin et al. 2017). L is the same for
    every network, because a margin loss has no gradient for images that are classified with a margin.

    Args:
        model: The network, in evaluation mode.
        images: Images in [0, 1].
        labels: Their labels.
        epsilon: Largest change of a pixel, from 0 to 1.
        method: "fgsm" or "bim".
        targets: Target classes of a targeted attack.

    Shape:
        images: [B, C, H, W]; labels, targets: [B]; returns [B, C, H, W].

    Returns:
        The perturbed images, clipped to [0, 1].

    Raises:
        ConfigError: If the method is unknown or `epsilon` is out of range.

    Example:
        >>> from torchcaps import create_model
        >>> images = torch.rand(2, 1, 28, 28)
        >>> changed = attack(create_model("cnn_small").eval(), images, torch.tensor([3, 5]), epsilon=0.1)
        >>> bool((changed - images).abs().max() <= 0.1 + 1e-6)
        True
    """
    _check(method, (epsilon,))
    steps = BIM_STEPS if method == "bim" else 1
    classes, sign = (labels, 1) if targets is None else (targets, -1)
    changed = images
    for _ in range(steps):
        leaf = changed.detach().requires_grad_()
        activations = model(leaf).activations.clamp_min(torch.finfo(leaf.dtype).tiny)  # [B, J]
        log_probs = activations.log() - activations.sum(dim=-1, keepdim=True).log()  # [B, J]
        loss = -log_probs.gather(1, classes.unsqueeze(1)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)  # [B, C, H, W]
        changed = (leaf.detach() + sign * epsilon / steps * gradient.sign()).clamp(0, 1)
    return changed


def evaluate_attack(
    model: ImageModel,
    data: ImageDataset,
    *,
    method: Method = "fgsm",
    targeted: bool = False,
    epsilons: Sequence[float] = EPSILONS,
    batch_size: int = 128,
    progress: Progress | None = None,
) -> Robustness:
    """Evaluate a network on attacked images, for each epsilon.

    A white-box attack: the gradients are those of the network in evaluation mode. The targets of a targeted attack
    are drawn at random among the other classes, with a fixed seed.

    Args:
        model: The network.
        data: Images with one label each.
        method: "fgsm" or "bim".
        targeted: Whether to attack towards a random other class.
        epsilons: Largest change of a pixel, each from 0 to 1.
        batch_size: Number of images per batch.
        progress: Called with (done, total) after each batch.

    Returns:
        Accuracy and, if targeted, success rate of the attack.

    Raises:
        ConfigError: If the method, an epsilon or the data do not fit.

    Example:
        >>> from torchcaps import create_model, load_data
        >>> few = load_data("digits", "test").subset(range(8))
        >>> evaluate_attack(create_model("cnn_small"), few, epsilons=(0.0, 0.1)).count
        8
    """
    _check(method, epsilons)
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got none ({data.name}, {data.split})")
    if data.num_labels != 1:
        raise ConfigError(f"data: expected one label per image, got {data.num_labels} ({data.name})")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(0)
    # An offset of 1 to J - 1 modulo J leads to another class.
    offset = torch.randint(1, max(2, data.num_classes), data.labels.shape, generator=generator)  # [N]
    targets = (data.labels + offset) % data.num_classes  # [N]
    correct, hits, done = [0] * len(epsilons), [0] * len(epsilons), 0
    try:
        for places in torch.arange(len(data)).split(batch_size):
            images = to_float(data.batch(places).images.to(device))  # [B, C, H, W]
            labels, aims = data.labels[places].to(device), targets[places].to(device)  # [B]
            for row, epsilon in enumerate(epsilons):
                chosen = aims if targeted else None
                changed = attack(model, images, labels, epsilon=epsilon, method=method, targets=chosen)
                with torch.inference_mode():
                    predicted = predict_labels(model(changed).activations)  # [B]
                correct[row] += int((predicted == labels).sum())
                hits[row] += int((predicted == aims).sum())
            done += len(places)
            if progress is not None:
                progress(done, len(data))
    finally:
        model.train(was_training)
    accuracy = tuple(count / len(data) for count in correct)
    success = tuple(count / len(data) for count in hits) if targeted else None
    return Robustness(method, targeted, tuple(epsilons), accuracy, success, len(data))


def _check(method: str, epsilons: Sequence[float]) -> None:
    if method not in get_args(Method):
        raise ConfigError(f"method: expected one of {', '.join(get_args(Method))}, got '{method}'")
    if not epsilons or not all(0 <= epsilon <= 1 for epsilon in epsilons):
        raise ConfigError(f"epsilon: expected numbers from 0 to 1, got {tuple(epsilons)}")
