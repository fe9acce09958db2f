"""Adversarial attacks: the fast gradient sign method, its iterated forms, and one that keeps the reconstruction."""

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

Method = Literal["fgsm", "bim", "pgd", "reconstructive"]

# Number of steps, and the size of one as a share of epsilon. The steps of BIM sum to epsilon (Kurakin et al. 2017);
# those of the last two go further, and are projected back.
STEPS: dict[Method, tuple[int, float]] = {
    "fgsm": (1, 1.0),
    "bim": (10, 0.1),
    "pgd": (100, 0.05),
    "reconstructive": (100, 0.05),
}
# Share of a reconstructive step that changes the class; the rest lowers the distance of the reconstruction.
SHARE = 0.5
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
    x - epsilon sign(grad L) with L of the target. BIM takes ten equal steps (Kurakin et al. 2017). PGD takes 100 steps
    of epsilon / 20, each projected back to changes of at most epsilon (Madry et al. 2018), without a random start. L is
    the same for every network, because a margin loss has no gradient for images that are classified with a margin.

    The reconstructive attack tries to stay undetected by the reconstruction (Qin et al. 2020, section 5). Each of its
    steps has two stages: x + c b sign(grad L), then x - c (1 - b) sign(grad |r(x) - x|), where r(x) is the
    reconstruction from the class that is predicted now, c = epsilon / 20 and b = 1/2.

    Args:
        model: The network, in evaluation mode.
        images: Images in [0, 1].
        labels: Their labels.
        epsilon: Largest change of a pixel, from 0 to 1.
        method: "fgsm", "bim", "pgd" or "reconstructive".
        targets: Target classes of a targeted attack.

    Shape:
        images: [B, C, H, W]; labels, targets: [B]; returns [B, C, H, W].

    Returns:
        The perturbed images, clipped to [0, 1].

    Raises:
        ConfigError: If the method is unknown or needs a decoder that the model lacks, or `epsilon` or the images are
            out of range. Signals and tokens have no range in which an attack could stay.

    Example:
        >>> from torchcaps import create_model
        >>> images = torch.rand(2, 1, 28, 28)
        >>> changed = attack(create_model("cnn_small").eval(), images, torch.tensor([3, 5]), epsilon=0.1)
        >>> bool((changed - images).abs().max() <= 0.1 + 1e-6)
        True
    """
    check_attack(method, (epsilon,), model)
    if len(images) and (float(images.min()) < 0 or float(images.max()) > 1):
        found = f"{float(images.min()):.3g} to {float(images.max()):.3g}"
        raise ConfigError(f"images: expected values from 0 to 1, got {found} (an attack stays in the range of images)")
    steps, size = STEPS[method]
    classes, sign = (labels, 1) if targets is None else (targets, -1)
    share = SHARE if method == "reconstructive" else 1.0
    changed = images

    def moved(by: Tensor) -> Tensor:
        near = torch.minimum(torch.maximum(changed + epsilon * size * by, images - epsilon), images + epsilon)
        return near.clamp(0, 1)

    for _ in range(steps):
        changed = moved(sign * share * _class_gradient(model, changed, classes).sign())  # [B, C, H, W]
        if share < 1:
            changed = moved((share - 1) * _distance_gradient(model, changed).sign())  # [B, C, H, W]
    return changed


def _class_gradient(model: ImageModel, images: Tensor, classes: Tensor) -> Tensor:
    """Return the gradient of -ln(a_class / sum_j a_j) by the images."""
    leaf = images.detach().requires_grad_()
    activations = model(leaf).activations.clamp_min(torch.finfo(leaf.dtype).tiny)  # [B, J]
    log_probs = activations.log() - activations.sum(dim=-1, keepdim=True).log()  # [B, J]
    (gradient,) = torch.autograd.grad(-log_probs.gather(1, classes.unsqueeze(1)).sum(), leaf)  # [B, C, H, W]
    return gradient


def _distance_gradient(model: ImageModel, images: Tensor) -> Tensor:
    """Return the gradient of the distance of an image and its reconstruction from the predicted class."""
    leaf = images.detach().requires_grad_()
    # The square has the gradient of the same sign, and one where the distance is 0.
    distance = (model.decode(model(leaf)) - leaf).square().sum()
    (gradient,) = torch.autograd.grad(distance, leaf)  # [B, C, H, W]
    return gradient


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
        method: "fgsm", "bim", "pgd" or "reconstructive".
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
    check_attack(method, epsilons, model)
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got 0 ({data.name}, {data.split})")
    if data.num_labels != 1:
        raise ConfigError(f"data: expected one label per image, got {data.num_labels} ({data.name})")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    targets = other_classes(data) if targeted else data.labels  # [N]
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


def other_classes(data: ImageDataset) -> Tensor:
    """Return a random other class for each image, with a fixed seed, as targets of an attack.

    Args:
        data: Images with one label each.

    Returns:
        The classes [N].

    Raises:
        ConfigError: If there is one class only.

    Example:
        >>> from torchcaps import load_data
        >>> few = load_data("digits", "test").subset(range(8))
        >>> bool((other_classes(few) == few.labels).any())
        False
    """
    if data.num_classes < 2:
        raise ConfigError(f"data: expected at least two classes, got {data.num_classes} ({data.name})")
    generator = torch.Generator().manual_seed(0)
    # An offset of 1 to J - 1 modulo J leads to another class.
    offset = torch.randint(1, data.num_classes, data.labels.shape, generator=generator)  # [N]
    return (data.labels + offset) % data.num_classes


def check_attack(method: str, epsilons: Sequence[float], model: ImageModel) -> None:
    """Check that an attack can be made.

    Args:
        method: Name of the attack.
        epsilons: Largest changes of a pixel.
        model: The network.

    Raises:
        ConfigError: If the method is unknown or needs a decoder that the model lacks, or an epsilon is out of range.

    Example:
        >>> from torchcaps import create_model
        >>> check_attack("pgd", [0.3], create_model("cnn_small"))
    """
    if method not in get_args(Method):
        raise ConfigError(f"method: expected one of {', '.join(get_args(Method))}, got '{method}'")
    if not epsilons or not all(0 <= epsilon <= 1 for epsilon in epsilons):
        raise ConfigError(f"epsilon: expected numbers from 0 to 1, got {tuple(epsilons)}")
    if method == "reconstructive" and model.decoder is None:
        raise ConfigError(f"method: expected a network with a decoder, got '{method}' for {type(model).__name__}")
