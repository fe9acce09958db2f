"""Every call of the golden tests into torchcaps. A rename changes this file and no hash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.models import ImageModel
from torchcaps.nn import LOSSES, CapsConv2d, CapsLinear, ClassCaps
from torchcaps.ops import _native


def library_path() -> Path | None:
    """The compiled library, or None where there is none."""
    paths = [Path(folder) / _native.LIBRARY for folder in tc.__path__]
    return next((path for path in paths if path.is_file()), None) if _native.missing_reason() is None else None


def instruction_set() -> str:
    return _native.instruction_set()


def dynamic(
    poses: Tensor, weight: Tensor, bias: Tensor | None, *, iters: int, leaky: bool, last_only: bool
) -> list[Tensor]:
    return list(torch.ops.torchcaps.dynamic_routing(poses, weight, bias, iters, leaky, last_only, 0))[:1]


def attention_pass(poses: Tensor, weight: Tensor, key: Tensor | None, prior: Tensor | None) -> list[Tensor]:
    return [torch.ops.torchcaps.agree(poses, weight, key, prior)]


def weighted_sum(share: Tensor, poses: Tensor, weight: Tensor, grad: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The kernel beneath self-routing and its gradients, without the softmax that torch computes around it."""
    total, grads = torch.empty_like(grad), [torch.empty_like(tensor) for tensor in (share, poses, weight)]
    sizes = [*poses.shape[:2], *weight.shape[1:]]
    _native.call("weighted_sum_forward", [share, poses, weight, total], sizes)
    _native.call("weighted_sum_backward", [share, poses, weight, grad, *grads], sizes)
    return [total], grads


def em(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    *,
    window: Sequence[int],
    constants: Sequence[float],
) -> list[Tensor]:
    # The options that the cases do not name: start 'parents', momentum 0 and sharpness 1.
    floors, inverse_temp = list(constants[:2]), list(constants[2:])
    options = [*floors, 0.0, *inverse_temp, *[1.0] * len(inverse_temp)]
    out = torch.ops.torchcaps.em_routing(poses, activations, weight, betas, offsets, [*window, 0], options)
    return list(out)[:2]


def gaussian(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    betas: Tensor,
    offsets: Tensor | None,
    *,
    window: Sequence[int],
    iters: int,
    variational: bool,
    constants: Sequence[float],
) -> list[Tensor]:
    op = torch.ops.torchcaps.gaussian_routing
    return list(op(poses, activations, weight, betas, offsets, list(window), iters, variational, list(constants)))[:2]


def kuramoto(
    poses: Tensor,
    activations: Tensor,
    weight: Tensor,
    keys: Tensor | None,
    offsets: Tensor | None,
    *,
    window: Sequence[int],
    turns: int,
) -> list[Tensor]:
    op = torch.ops.torchcaps.kuramoto_pass
    return [op(poses, activations, weight, keys, offsets, list(window), turns, [4.0, 0.5])]


def linear(routing: dict[str, Any], *, shared: bool = False, bias: bool = False, backend: Any = "auto") -> nn.Module:
    """20 children, or any number of them, of 8 entries and 5 parents of 12 entries."""
    return CapsLinear(None if shared else 20, 5, 8, 12, routing=routing, bias=bias, backend=backend)


def conv(routing: dict[str, Any], **options: Any) -> nn.Module:
    return CapsConv2d(3, 5, kernel_size=3, routing=routing, **options)


def classes(routing: dict[str, Any], **options: Any) -> nn.Module:
    places = [0.1, 0.3, 0.5, 0.7, 0.9]
    return ClassCaps(3, 5, routing=routing, centres=(places, places), **options)


def run_layer(layer: nn.Module, poses: Tensor, activations: Tensor) -> list[Tensor]:
    return list(layer(tc.Capsules(poses, activations)))


def model_names() -> list[str]:
    return tc.list_models()


# The settings under which hashes of the matrix networks were stored; their defaults have changed since.
MATRIX_OPTIONS: dict[str, Any] = {
    "routing": {"name": "em", "iters": 3, "sharpness": 1.0, "scale": 1.0, "beta_a_init": 0.0},
    "coordinates": 1.0,
}


def make_model(name: str) -> ImageModel:
    return tc.create_model(name, **MATRIX_OPTIONS if name in ("matrix_capsnet", "matrix_capsnet_small") else {})


def training_loss(model: Any, images: Tensor, labels: Tensor) -> Tensor:
    """The loss that the model is made for; a model without classes has an objective of its own."""
    if not model.is_classifier:
        return model.objective(images, torch.Generator().manual_seed(0))
    capsules = model(images)
    loss = LOSSES[model.default_loss]()(capsules, labels)
    if model.decoder is not None:
        loss = loss + (model.decode(capsules, labels) - images).square().mean()
    return loss
