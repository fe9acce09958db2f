from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from torchcaps.data import to_float
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import ROUTERS
from torchcaps.playground import PlaygroundNetwork
from torchcaps.playground.images import SampleSource
from torchcaps.playground.routing import TraceRequest, comparable_routers, trace, unavailable_reason
from torchcaps.types import Capsules, Trace

SAMPLE = {"sample": 8}


@torch.inference_mode()
def test_own_trace(ask: Any, network: PlaygroundNetwork) -> None:
    shown = ask("routing/trace", source=SAMPLE)
    own = network.model.trace(to_float(network.samples.images[8:9]))
    (way,) = shown["traces"]
    assert shown["parent"] == int(own.activations[-1, 0].argmax())
    assert torch.allclose(torch.tensor(way["activations"]), own.activations[:, 0], atol=1e-5)
    assert torch.allclose(torch.tensor(way["coupling"]), own.coupling[:, 0, :, shown["parent"]], atol=1e-5)
    assert way["entropy"][0] == pytest.approx(1, abs=1e-4)
    assert way["change"][0] == 0 < way["change"][1]


def test_order_and_places_of_children(ask: Any) -> None:
    shown = ask("routing/trace", source=SAMPLE)
    assert (shown["rows"], shown["columns"], shown["types"]) == (3, 3, 16)
    assert len(shown["present"]) == len(shown["votes"]) == 144
    # Two convolutions of 5, one of 5 by strides of two each: 17 pixels wide, every four pixels.
    assert shown["places"][0] == pytest.approx([8.5 / 28] * 2)
    assert shown["places"][5] == pytest.approx([12.5 / 28, 16.5 / 28])


def test_shares_sum_to_one(ask: Any) -> None:
    (way,) = ask("routing/trace", source=SAMPLE)["traces"]
    assert torch.allclose(torch.tensor(way["shares"]).sum(dim=1), torch.ones(3, 9), atol=1e-4)


@pytest.mark.parametrize("name", comparable_routers())
def test_every_router_is_comparable(ask: Any, name: str) -> None:
    shown = ask("routing/trace", source=SAMPLE, routers=["own", name], iters=4, parent=6)
    own, other = shown["traces"]
    assert (own["router"], other["router"], shown["parent"]) == ("own", name, 6)
    assert len(own["path"]) == 3
    assert len(other["path"]) in (1, 4)
    assert len(other["coupling"][0]) == 144


@torch.inference_mode()
def test_own_router_by_name(ask: Any) -> None:
    own, named = ask("routing/trace", source=SAMPLE, routers=["own", "dynamic"])["traces"]
    assert torch.allclose(torch.tensor(own["shares"]), torch.tensor(named["shares"]), atol=1e-5)


def test_invalid_routers(ask: Any, refuse: Any) -> None:
    names = ask("routing/routers")
    assert names["own"] == "dynamic"
    assert set(ROUTERS) - set(names["routers"]) == {"self_routing"}
    assert refuse("routing/trace", source=SAMPLE, routers=["self_routing"]) == (
        400,
        "routers: expected a router that needs no training, got 'self_routing'",
    )
    assert refuse("routing/trace", source=SAMPLE, routers=["kmean"]) == (
        400,
        "unknown router 'kmean'; did you mean 'kmeans'?",
    )
    assert refuse("routing/trace", source=SAMPLE, parent=10) == (
        400,
        "parent: expected a class number from 0 to 9, got 10",
    )
    status, words = refuse("routing/trace", source=SAMPLE, routers=["em"] * 3)
    assert (status, words) == (422, "routers: List should have at most 2 items after validation, not 3")


def other(network: PlaygroundNetwork, model: ImageModel) -> PlaygroundNetwork:
    return dataclasses.replace(network, model=model)


def test_matrix_capsules(network: PlaygroundNetwork) -> None:
    model = create_model("matrix_capsnet_small", image_shape=(1, 28, 28)).eval()
    shown = trace(TraceRequest(source=SampleSource(sample=0), routers=["own", "dynamic"]), other(network, model))
    assert len(shown.places) == shown.rows * shown.columns
    assert len(shown.present) == len(shown.places) * shown.types
    assert model.head.offsets is not None  # pyright: ignore[reportAttributeAccessIssue]


def test_network_without_features(network: PlaygroundNetwork) -> None:
    model = create_model("capsnet_small").eval()
    children = model.features

    class Hidden(type(model)):
        def features(self, images: torch.Tensor) -> Capsules:
            return Capsules(torch.zeros(1, 1, 8), torch.ones(1, 1))

        def trace(self, images: torch.Tensor) -> Trace:
            return self.head.trace(children(images))

    model.__class__ = Hidden
    shown = trace(TraceRequest(source=SampleSource(sample=0), routers=["own", "em"]), other(network, model))
    assert (shown.rows, shown.columns, shown.types) == (1, 1, 144)
    assert shown.present == [1.0] * 144


def test_cnn_is_unavailable(network: PlaygroundNetwork) -> None:
    assert unavailable_reason(network) is None
    assert network.cnn is not None
    assert (
        unavailable_reason(other(network, network.cnn))
        == "This network has no routing: its classes have scores and no capsules."
    )
