"""device= and dtype= of every layer, decoder and router, as torch's own layers have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn as tnn

from torchcaps import nn

LAYERS: dict[str, tuple[type[tnn.Module], tuple[Any, ...]]] = {
    "CapsConv1d": (nn.CapsConv1d, (2, 3)),
    "CapsConv2d": (nn.CapsConv2d, (2, 3)),
    "CapsConv3d": (nn.CapsConv3d, (2, 3)),
    "CapsHead": (nn.CapsHead, (6, 3)),
    "CapsLinear": (nn.CapsLinear, (6, 3, 4, 5)),
    "ClassCaps": (nn.ClassCaps, (2, 3)),
    "ComplexConv2d": (nn.ComplexConv2d, (2, 3, 3)),
    "DeconvDecoder": (nn.DeconvDecoder, (3, 4, (1, 8, 8))),
    "DecoupledConv2d": (nn.DecoupledConv2d, (2, 3, 3)),
    "FeatureCaps": (nn.FeatureCaps, (6, 2, 4)),
    "KuramotoConv2d": (nn.KuramotoConv2d, (4,)),
    "KuramotoReadout": (nn.KuramotoReadout, (4, 2, 3)),
    "LazyCapsLinear": (nn.LazyCapsLinear, (3, 5)),
    "MLPDecoder": (nn.MLPDecoder, (3, 4, (1, 8, 8))),
    "ModulusReLU": (nn.ModulusReLU, (3,)),
    "PrimaryCaps1d": (nn.PrimaryCaps1d, (3, 2, 4)),
    "PrimaryCaps2d": (nn.PrimaryCaps2d, (3, 2, 4)),
    "PrimaryCaps3d": (nn.PrimaryCaps3d, (3, 2, 4)),
    "PrimaryMatrixCaps1d": (nn.PrimaryMatrixCaps1d, (3, 2)),
    "PrimaryMatrixCaps2d": (nn.PrimaryMatrixCaps2d, (3, 2)),
    "PrimaryMatrixCaps3d": (nn.PrimaryMatrixCaps3d, (3, 2)),
}
MAKERS: dict[str, Callable[..., tnn.Module]] = {
    **{name: lambda kind=kind, args=args, **factory: kind(*args, **factory) for name, (kind, args) in LAYERS.items()},
    **{
        f"router {name}": lambda name=name, **factory: nn.CapsLinear(6, 3, 4, 5, routing=name, **factory)
        for name in nn.list_routers()
    },
}


def test_every_layer_with_parameters_is_listed() -> None:
    # Losses and routers have no weights of their own making; Scores wraps a model.
    others = (nn.Router, nn.Scores, nn.InstanceStandardize, nn.ReconstructionLoss, *(nn.LOSSES[x] for x in nn.LOSSES))
    public = [getattr(nn, name) for name in nn.__all__]
    layers = {each.__name__ for each in public if isinstance(each, type) and issubclass(each, tnn.Module)}
    assert layers - {each.__name__ for each in public if isinstance(each, type) and issubclass(each, others)} == set(
        LAYERS
    )


@pytest.mark.parametrize("name", MAKERS)
def test_device_and_dtype(name: str) -> None:
    for factory in ({"device": "meta"}, {"dtype": torch.float64}, {"device": "cpu", "dtype": torch.bfloat16}):
        layer = MAKERS[name](**factory)
        assert list(layer.parameters())
        for key, parameter in layer.named_parameters():
            assert parameter.device.type == factory.get("device", "cpu"), key
            assert parameter.dtype == factory.get("dtype", torch.float32), key


# A lazy layer has no parameters to skip.
@pytest.mark.parametrize("name", [name for name in LAYERS if not name.startswith("Lazy")])
def test_skip_init(name: str) -> None:
    kind, args = LAYERS[name]
    layer = tnn.utils.skip_init(kind, *args, dtype=torch.float64)
    plain = kind(*args)
    assert {key: value.shape for key, value in layer.state_dict().items()} == {
        key: value.shape for key, value in plain.state_dict().items()
    }
    assert all(value.device.type == "cpu" and value.dtype == torch.float64 for value in layer.parameters())
