from __future__ import annotations

import pytest
import torch

from torchcaps.models import create_model


@pytest.mark.parametrize("classes", [2, 9])
@pytest.mark.parametrize("shape", [(1, 24), (6, 100), (12, 400), (1, 16, 16, 16), (1, 40, 40, 40)], ids=str)
def test_class_capsules_begin_with_a_medium_length(shape: tuple[int, ...], classes: int) -> None:
    torch.manual_seed(0)
    model = create_model(f"capsnet_{len(shape) - 1}d", shape, classes, decoder=None)
    with torch.no_grad():
        lengths = model(torch.randn(4, *shape)).activations  # [4, J]
    # Lengths near 0 or 1 have no gradient: a class is then never found, or never left out.
    assert 0.05 < lengths.mean() < 0.95


def test_places_of_a_signal_are_counted_from_its_centre() -> None:
    offsets = create_model("capsnet_1d", (1, 100), 4, decoder=None).head.offsets  # [T, 1]
    assert torch.allclose(offsets, -offsets.flip(0), atol=0.01)
    assert offsets.abs().max() < 0.1


@pytest.mark.parametrize("routing", ["em", "heinsen"])
def test_routers_that_take_means_or_count_children_need_no_gain(routing: str) -> None:
    assert create_model("capsnet_1d", (1, 40), 3, routing=routing, decoder=None).gain == 1
