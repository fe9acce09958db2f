"""Function transforms, forward-mode derivatives and export over all models and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from model_shapes import by_name
from torchcaps.models import create_model
from torchcaps.nn import LOSSES, CapsLinear
from torchcaps.nn.conv import GridCaps
from torchcaps.types import Capsules

# The first use of jvp compiles decompositions with torch.jit.script; some operators have no batching rule.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return create_model(name).eval()


def use_backend(model: nn.Module, backend: str) -> nn.Module:
    for module in model.modules():
        if isinstance(module, CapsLinear | GridCaps):
            module.backend = backend
    return model


def run(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def activations(images: Tensor) -> Tensor:
        out: Any = model(images)
        return out.activations if isinstance(out, Capsules) else out

    return activations


def images(model: Any, batch: int = 2) -> Tensor:
    return torch.rand(batch, *model.image_shape, generator=torch.Generator().manual_seed(1))


@by_name
def test_jvp_matches_reference(name: str) -> None:
    model = make(name)
    x = images(model)
    direction = torch.randn_like(x)
    out, tangent = torch.func.jvp(run(model), (x,), (direction,))[:2]
    expected = torch.func.jvp(run(use_backend(model, "reference")), (x,), (direction,))[1]
    assert tangent.abs().max() > 0
    torch.testing.assert_close(tangent, expected)
    assert out.shape == tangent.shape


@by_name
def test_forward_mode_has_a_tangent_with_frozen_weights(name: str) -> None:
    model = make(name).requires_grad_(False)
    x = images(model, 1)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        tangent = torch.autograd.forward_ad.unpack_dual(run(model)(dual)).tangent
    assert tangent is not None
    assert tangent.abs().max() > 0


@by_name
def test_func_grad_matches_autograd(name: str) -> None:
    model = make(name)
    x = images(model).requires_grad_()
    (expected,) = torch.autograd.grad(run(model)(x).square().sum(), x)
    got = torch.func.grad(lambda x: run(model)(x).square().sum())(x.detach())
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)


@by_name
def test_jacrev(name: str) -> None:
    model = make(name)
    x = images(model, 1)
    if name == "transforming_autoencoder":
        pytest.skip("its output is an image: a Jacobian of pixels by pixels")
    jacobian = torch.func.jacrev(run(model))(x)
    first = torch.func.grad(lambda x: run(model)(x)[0, 0])(x)
    torch.testing.assert_close(jacobian[0, 0], first)


@by_name
def test_gradients_per_sample(name: str) -> None:
    model: Any = make(name)
    if not model.is_classifier:
        pytest.skip("it has an objective of its own")
    loss = LOSSES[model.default_loss]().eval()
    x, labels = images(model, 3), torch.tensor([0, 2, 1])
    weights = {key: value.detach() for key, value in model.named_parameters()}

    def of_sample(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return loss(functional_call(model, weights, (image.unsqueeze(0),)), label.unsqueeze(0))

    each = torch.func.vmap(torch.func.grad(of_sample), (None, 0, 0))(weights, x, labels)
    alone = torch.func.grad(of_sample)(weights, x[1], labels[1])
    for key, value in alone.items():
        torch.testing.assert_close(each[key][1], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LOSSES.names())
def test_losses_per_sample(name: str, training: bool) -> None:
    loss = LOSSES[name]().train(training)
    poses, activations = torch.randn(4, 3, 1), torch.rand(4, 3)
    labels = torch.tensor([0, 2, 1, 1])

    def of_sample(poses: Tensor, activations: Tensor, label: Tensor) -> Tensor:
        return loss(Capsules(poses.unsqueeze(0), activations.unsqueeze(0)), label.unsqueeze(0))

    grads = torch.func.vmap(torch.func.grad(of_sample, argnums=(0, 1)))(poses, activations, labels)
    poses.requires_grad_()
    activations.requires_grad_()
    expected = torch.autograd.grad(loss(Capsules(poses, activations), labels), (poses, activations), allow_unused=True)
    for got, value in zip(grads, expected, strict=True):
        torch.testing.assert_close(got / 4, torch.zeros_like(got) if value is None else value)


@pytest.mark.parametrize("name", ["capsnet_small", "kmeans_capsnet", "matrix_capsnet_small"])
def test_export_has_no_operator_of_this_package(name: str) -> None:
    model = make(name)

    class Activations(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            return self.model(x).activations

    x = images(model)
    program = torch.export.export(Activations(), (x,), strict=False)
    assert "torchcaps." not in str(program.graph)
    torch.testing.assert_close(program.module()(x), run(model)(x), rtol=1e-4, atol=1e-5)
