"""Any router in the networks that route, chosen by one argument."""

from __future__ import annotations

import pytest
import torch

from torchcaps.errors import ConfigError
from torchcaps.models import create_model
from torchcaps.nn import LOSSES, ROUTERS

pytestmark = pytest.mark.parametrize("router", ROUTERS.names())


@pytest.mark.parametrize("name", ["capsnet_small", "matrix_capsnet_small"])
def test_the_gradient_reaches_every_parameter(name: str, router: str) -> None:
    torch.manual_seed(0)
    try:
        model = create_model(name, image_shape=(1, 20, 20), num_classes=3, routing={"name": router})
    except ConfigError as error:
        # tests/nn/test_any_router.py reads its words.
        pytest.skip(f"{router} does not serve: {error}")
    images = torch.rand(3, 1, 20, 20)
    capsules = model(images)
    # Self-routing is the one whose activations do not depend on the votes: its last weight learns from poses alone.
    loss = LOSSES[model.loss]()(capsules, torch.arange(3)) + capsules.poses.square().mean()
    if model.decoder is not None:
        loss = loss + (model.decode(capsules, torch.arange(3)) - images).square().mean()
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.count_nonzero() > 0, parameter_name
    assert model.trace(images).algorithm == ROUTERS[router].algorithm
