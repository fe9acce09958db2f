from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from torchcaps.diagnostics.layers import (
    MAX_BATCH,
    LayerDiagnostics,
    _untied_argmax,
    diagnose_layers,
    images_per_batch,
    layer_votes,
)
from torchcaps.nn import CapsConv2d, ClassCaps, make_router
from torchcaps.types import Capsules


class Net(nn.Module):
    """A grid of 16 numbers, two capsule layers, four classes."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = CapsConv2d(2, 3, 2, routing=make_router("em"))
        self.head = ClassCaps(3, 4, routing=make_router("em"))

    def forward(self, poses: Tensor) -> Capsules:
        return self.head(self.lower(Capsules(poses, torch.full(poses.shape[:-1], 0.8))))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def grids() -> Tensor:
    return torch.randn(6, 4, 4, 2, 16, generator=torch.Generator().manual_seed(0))


def test_votes_of_each_layer(net: Net) -> None:
    # Nine positions of 2x2x2 children and three parents; 27 children and four classes.
    assert layer_votes(net, grids()[:1]) == {"lower": 9 * 8 * 3 * 16, "head": 27 * 4 * 16}
    assert layer_votes(nn.Linear(2, 2), torch.zeros(1, 2)) == {}


def test_image_count_from_memory() -> None:
    assert [images_per_batch(votes) for votes in (1, 2**20, 2**30)] == [MAX_BATCH, 8, 1]


def test_chosen_layers_match_all_layers(net: Net) -> None:
    lower, head = diagnose_layers(net, [grids()])
    assert (lower.name, lower.parents, head.name, head.parents) == ("lower", 3, "head", 4)
    assert diagnose_layers(net, [grids()], ["head"]) == (head,)
    assert diagnose_layers(net, [grids()], []) == ()


def test_batches_are_weighted_by_size(net: Net) -> None:
    for whole, parts in zip(
        diagnose_layers(net, [grids()]), diagnose_layers(net, [grids()[:5], grids()[5:]]), strict=True
    ):
        assert parts.entropy == pytest.approx(whole.entropy, rel=1e-5)
        assert parts.logit_change == pytest.approx(whole.logit_change, rel=1e-4)
        assert parts.activation == pytest.approx(whole.activation, rel=1e-5)
        assert (parts.changed, parts.dead) == (whole.changed, whole.dead)


def test_dead_and_starved_parents() -> None:
    layer = LayerDiagnostics("head", "em", 8, 4, (0.5,), (), None, (0.9, 0.04, 0.06, 0.0), (3.9, 0.1, 0.0, 0.0))
    assert (layer.dead, layer.starved) == (0.5, 0.5)


def test_tied_classes_change_no_prediction() -> None:
    activations = torch.tensor([[0.2, 0.7, 0.1], [0.3, 0.1, 0.3]])
    assert _untied_argmax(activations).tolist() == [1, -1]
    assert _untied_argmax(activations[:, :1]).tolist() == [0, 0]
