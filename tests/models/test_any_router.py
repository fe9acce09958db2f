"""Any router in the networks that route, chosen by one argument."""

from __future__ import annotations

import pytest
import torch

from torchcaps.models import create_model
from torchcaps.nn import LOSSES, ROUTERS

pytestmark = pytest.mark.parametrize("router", ROUTERS.names())


NAMES = [
    "attention_capsnet_small",
    "backbone_capsnet",
    "capsnet_small",
    "deep_capsnet_small",
    "efficient_capsnet",
    "kmeans_capsnet",
    "matrix_capsnet_small",
]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_every_parameter(name: str, router: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_shape=(1, 20, 20), num_classes=3, routing={"name": router})
    # Where the next layer reads only poses, parameters that affect only activations have no gradient.
    unheard = router == "variational" and name in ("attention_capsnet_small", "deep_capsnet_small")
    images = torch.rand(3, 1, 20, 20)
    capsules = model(images)
    # The activations of self-routing do not depend on the votes: the last weight has a gradient through poses only.
    loss = LOSSES[model.default_loss]()(capsules, torch.arange(3)) + capsules.poses.square().mean()
    if model.decoder is not None:
        loss = loss + (model.decode(capsules, torch.arange(3)) - images).square().mean()
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        if unheard and "routing.beta" in parameter_name:
            continue
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.count_nonzero() > 0, parameter_name
    assert model.trace(images).algorithm == ROUTERS[router].algorithm
