"""Images changed a little so that a network errs: the fast gradient sign method and its iterated form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from torchcaps.data import ImageData, to_float
from torchcaps.errors import ConfigError
from torchcaps.eval.evaluate import Progress
from torchcaps.models import ImageModel

Method = Literal["fgsm", "bim"]

# Steps of the iterated method, each a fair part of the whole change (Kurakin et al. 2017).
BIM_STEPS = 10
EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


@dataclass(frozen=True)
class Robustness:
    """How a network stands against one attack: a row of `accuracy` and `fooled` for each size of the change.

    `accuracy` is the share of images that are classed rightly all the same; `fooled`, for a targeted attack, the share
    of images that are taken for the class that the attack chose.
    """

    method: Method
    targeted: bool
    epsilons: tuple[float, ...]
    accuracy: tuple[float, ...]
    fooled: tuple[float, ...] | None
    count: int

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
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
    """Images [B, C, H, W] in [0, 1], moved by at most epsilon per pixel so that a class gets less likely, or more.

    x + epsilon sign(grad of L), L = -ln(a_label / sum_j a_j) (Goodfellow et al. 2015); with `targets` [B] the way down
    L of the target instead. 'bim' goes the way in ten equal steps and looks anew at each (Kurakin et al. 2017). L is
    the same for every network: a margin loss has no gradient where an image is classed well enough.

    >>> from torchcaps import create_model
    >>> images = torch.rand(2, 1, 28, 28)
    >>> changed = attack(create_model("cnn_small").eval(), images, torch.tensor([3, 5]), epsilon=0.1)
    >>> bool((changed - images).abs().max() <= 0.1 + 1e-6)
    True
    """
    _check(method, (epsilon,))
    steps = BIM_STEPS if method == "bim" else 1
    wanted, sign = (labels, 1) if targets is None else (targets, -1)
    changed = images
    for _ in range(steps):
        leaf = changed.detach().requires_grad_()
        activations = model(leaf).activations.clamp_min(torch.finfo(leaf.dtype).tiny)  # [B, J]
        likely = activations.log() - activations.sum(dim=-1, keepdim=True).log()  # [B, J]
        loss = -likely.gather(1, wanted.unsqueeze(1)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)  # [B, C, H, W]
        changed = (leaf.detach() + sign * epsilon / steps * gradient.sign()).clamp(0, 1)
    return changed


def withstand(
    model: ImageModel,
    data: ImageData,
    *,
    method: Method = "fgsm",
    targeted: bool = False,
    epsilons: Sequence[float] = EPSILONS,
    batch_size: int = 128,
    progress: Progress | None = None,
) -> Robustness:
    """How many images a network still gets right when each is attacked, at each size of the change.

    A targeted attack draws another class for each image, the same ones every time. The network is attacked as it is in
    evaluation, with its own gradients.

    >>> from torchcaps import create_model, load_data
    >>> few = load_data("digits", "test").subset(range(8))
    >>> withstand(create_model("cnn_small"), few, epsilons=(0.0, 0.1)).count
    8
    """
    _check(method, epsilons)
    if not len(data):
        raise ConfigError(f"data: expected at least one image, got none ({data.name}, {data.split})")
    if data.num_labels != 1:
        raise ConfigError(f"data: expected one class in each image, got {data.num_labels} ({data.name})")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    generator = torch.Generator().manual_seed(0)
    # The class at a distance of 1 to J - 1 from the right one is another one.
    distance = torch.randint(1, max(2, data.num_classes), data.labels.shape, generator=generator)  # [N]
    targets = (data.labels + distance) % data.num_classes  # [N]
    right, fooled, done = [0] * len(epsilons), [0] * len(epsilons), 0
    try:
        for places in torch.arange(len(data)).split(batch_size):
            images = to_float(data.batch(places).images.to(device))  # [B, C, H, W]
            labels, wanted = data.labels[places].to(device), targets[places].to(device)  # [B]
            for row, epsilon in enumerate(epsilons):
                aim = wanted if targeted else None
                changed = attack(model, images, labels, epsilon=epsilon, method=method, targets=aim)
                with torch.inference_mode():
                    said = model(changed).activations.argmax(dim=-1)  # [B]
                right[row] += int((said == labels).sum())
                fooled[row] += int((said == wanted).sum())
            done += len(places)
            if progress is not None:
                progress(done, len(data))
    finally:
        model.train(was_training)
    shares = tuple(count / len(data) for count in right)
    misled = tuple(count / len(data) for count in fooled) if targeted else None
    return Robustness(method, targeted, tuple(epsilons), shares, misled, len(data))


def _check(method: str, epsilons: Sequence[float]) -> None:
    if method not in get_args(Method):
        raise ConfigError(f"method: expected one of {', '.join(get_args(Method))}, got '{method}'")
    if not epsilons or not all(0 <= epsilon <= 1 for epsilon in epsilons):
        raise ConfigError(f"epsilon: expected numbers from 0 to 1, got {tuple(epsilons)}")
