from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from torchcaps.data import to_float
from torchcaps.models import ImageModel, create_model
from torchcaps.nn import ROUTERS
from torchcaps.playground import Network
from torchcaps.playground.picture import Source
from torchcaps.playground.routing import Ask, comparable, lacking, trace

SAMPLE = {"sample": 8}


@torch.inference_mode()
def test_what_is_shown_is_the_trace_of_the_network(ask: Any, network: Network) -> None:
    shown = ask("routing/trace", source=SAMPLE)
    own = network.model.trace(to_float(network.samples.images[8:9]))
    (way,) = shown["ways"]
    assert shown["parent"] == int(own.activations[-1, 0].argmax())
    assert torch.allclose(torch.tensor(way["activations"]), own.activations[:, 0], atol=1e-5)
    assert torch.allclose(torch.tensor(way["coupling"]), own.coupling[:, 0, :, shown["parent"]], atol=1e-5)
    assert way["entropy"][0] == pytest.approx(1, abs=1e-4)
    assert way["change"][0] == 0 < way["change"][1]


def test_children_are_numbered_place_by_place(ask: Any) -> None:
    shown = ask("routing/trace", source=SAMPLE)
    assert (shown["rows"], shown["columns"], shown["types"]) == (3, 3, 16)
    assert len(shown["present"]) == len(shown["votes"]) == 144
    # Two convolutions of 5, one of 5 by strides of two each: 17 pixels wide, every four pixels.
    assert shown["places"][0] == pytest.approx([8.5 / 28] * 2)
    assert shown["places"][5] == pytest.approx([12.5 / 28, 16.5 / 28])


def test_the_shares_of_a_place_sum_to_one_over_the_classes(ask: Any) -> None:
    (way,) = ask("routing/trace", source=SAMPLE)["ways"]
    assert torch.allclose(torch.tensor(way["shares"]).sum(dim=1), torch.ones(3, 9), atol=1e-4)


@pytest.mark.parametrize("name", comparable())
def test_every_router_can_be_set_beside_the_networks_own(ask: Any, name: str) -> None:
    shown = ask("routing/trace", source=SAMPLE, routers=["own", name], iters=4, parent=6)
    own, other = shown["ways"]
    assert (own["router"], other["router"], shown["parent"]) == ("own", name, 6)
    assert len(own["path"]) == 3
    assert len(other["path"]) in (1, 4)
    assert len(other["coupling"][0]) == 144


@torch.inference_mode()
def test_the_networks_own_routing_by_name_is_the_same(ask: Any) -> None:
    own, named = ask("routing/trace", source=SAMPLE, routers=["own", "dynamic"])["ways"]
    assert torch.allclose(torch.tensor(own["shares"]), torch.tensor(named["shares"]), atol=1e-5)


def test_only_what_needs_no_training_is_compared(ask: Any, refuse: Any) -> None:
    names = ask("routing/names")
    assert names["own"] == "dynamic"
    assert set(ROUTERS) - set(names["routers"]) == {"self_routing"}
    assert refuse("routing/trace", source=SAMPLE, routers=["self_routing"]) == (
        400,
        "routers: expected one that can route without training, got 'self_routing'",
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


def other(network: Network, model: ImageModel) -> Network:
    return dataclasses.replace(network, model=model)


def test_matrix_capsules_know_their_places(network: Network) -> None:
    model = create_model("matrix_capsnet_small", image_shape=(1, 28, 28)).eval()
    shown = trace(Ask(source=Source(sample=0), routers=["own", "dynamic"]), other(network, model))
    assert len(shown.places) == shown.rows * shown.columns
    assert len(shown.present) == len(shown.places) * shown.types
    assert model.head.offsets is not None  # pyright: ignore[reportAttributeAccessIssue]


def test_a_network_that_hides_its_children_shows_their_votes(network: Network) -> None:
    model = create_model("capsnet_small").eval()
    children: Any = model.features
    hidden: Any = type("Hidden", (type(model),), {"features": property(lambda self: None)})
    hidden.trace = lambda self, images: self.head.trace(children(images))
    model.__class__ = hidden
    shown = trace(Ask(source=Source(sample=0), routers=["own", "em"]), other(network, model))
    assert (shown.rows, shown.columns, shown.types) == (1, 1, 144)
    assert shown.present == [1.0] * 144


def test_a_cnn_has_no_routing(network: Network) -> None:
    assert lacking(network) is None
    assert network.cnn is not None
    assert lacking(other(network, network.cnn)) == "This network has no routing: its classes are scores."
