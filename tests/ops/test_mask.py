"""Masks of children in every layer, with every router and backend."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ShapeError
from torchcaps.nn import ROUTERS, CapsConv2d, CapsLinear, ClassCaps
from torchcaps.ops.conv import Competition

every_router = pytest.mark.parametrize("name", sorted(ROUTERS))
Layer = CapsLinear | CapsConv2d | ClassCaps


def grid(types: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Poses and activations of a grid, and a mask whose last sample has no child at all and the first few."""
    torch.manual_seed(0)
    poses, activations = torch.randn(3, 5, 5, types, 16), torch.rand(3, 5, 5, types)
    mask = torch.rand(3, 5, 5, types) < 0.7
    mask[0, :3, :3] = False
    mask[2] = False
    return poses, activations, mask


def layers(name: str) -> list[Layer]:
    return [
        CapsConv2d(2, 3, 3, 2, routing=name),
        CapsConv2d(2, 3, 3, routing=name, competition="local"),
        ClassCaps(2, 3, routing=name, centres=([0.1, 0.3, 0.5, 0.7, 0.9], [0.1, 0.3, 0.5, 0.7, 0.9])),
        CapsLinear(50, 3, 16, 8, routing=name),
    ]


@every_router
@pytest.mark.parametrize("backend", ["auto", "reference", "recompute"])
def test_values_of_masked_children_have_no_effect(name: str, backend: str) -> None:
    poses, activations, mask = grid()
    broken = [poses.masked_fill(~mask.unsqueeze(-1), torch.nan), activations.masked_fill(~mask, torch.inf)]
    for layer in layers(name):
        layer.backend = backend
        expected = layer(tc.Capsules(poses, activations), mask)
        leaves = [tensor.clone().requires_grad_() for tensor in broken]
        got = layer(tc.Capsules(leaves[0], leaves[1]), mask)
        for ours, theirs in zip(got, expected, strict=True):
            assert torch.equal(ours, theirs)
            assert not ours[2].any()
        wanted = [*leaves, *layer.parameters()]
        grads = torch.autograd.grad([*got], wanted, [torch.ones_like(part) for part in got], allow_unused=True)
        assert all(grad is None or grad.isfinite().all() for grad in grads)
        assert grads[0] is not None
        assert not grads[0][~mask].any()


@every_router
def test_positions_without_children_are_zero(name: str) -> None:
    poses, activations, mask = grid()
    layer = CapsConv2d(2, 3, 3, 2, routing=name)
    children = tc.Capsules(poses, activations)
    out = layer(children, mask)
    seen = layer.window(children).seen(mask)
    assert seen.shape == (3, 2, 2)
    assert not seen[0, 0, 0]
    assert not seen[2].any()
    assert seen[1].all()
    assert not out.poses[~seen].any()
    assert not out.activations[~seen].any()


@every_router
def test_mask_of_places_masks_their_children(name: str) -> None:
    poses, activations, mask = grid()
    places = mask[..., 0]
    for layer in layers(name):
        children = tc.Capsules(poses, activations)
        for ours, theirs in zip(
            layer(children, places), layer(children, places.unsqueeze(-1).expand_as(mask)), strict=True
        ):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("competition", ["global", "local", "positions"])
def test_full_mask_has_all_children(competition: Competition) -> None:
    window = ops.Window((5, 6), (3, 2), 2, competition)
    mask = torch.ones(2, 5, 6, 3, dtype=torch.bool)
    assert torch.equal(window.present_share(mask.float()), torch.ones(2))
    layer = CapsConv2d(3, 4, (3, 2), 2, competition=competition)
    children = tc.Capsules(torch.randn(2, 5, 6, 3, 16), torch.rand(2, 5, 6, 3))
    for ours, theirs in zip(layer(children, mask), layer(children), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_wrong_masks_are_refused() -> None:
    children = tc.Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))
    layer = CapsLinear(6, 3, 4, 5)
    with raises_about(ShapeError, "mask", (2, 5)):
        layer(children, torch.ones(2, 5, dtype=torch.bool))
    with raises_about(ShapeError, "mask", "float32"):
        layer(children, torch.ones(2, 6))
