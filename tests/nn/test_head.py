from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import ROUTERS, CapsHead, FeatureCaps
from torchcaps.nn.head import SharedCaps
from torchcaps.types import Capsules

POOLS = ("attention", "none")
INPUTS = {"maps": (2, 12, 3, 4), "tokens": (2, 5, 12), "vectors": (2, 12)}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("router", ROUTERS.names())
@pytest.mark.parametrize("shape", INPUTS.values(), ids=INPUTS)
def test_any_features_and_router(shape: tuple[int, ...], router: str, pool) -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=6, dim=4, routing=router, pool=pool)
    features = torch.randn(shape, requires_grad=True)
    capsules = head(features)
    assert capsules.poses.shape == (2, 3, 16)
    assert capsules.activations.shape == (2, 3)
    (capsules.activations.square().sum() + capsules.poses.square().sum()).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
    assert features.grad.count_nonzero() > 0
    head.eval()
    torch.testing.assert_close(head.trace(features).routed.poses, head(features).poses)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("router", ["dynamic", "em"])
def test_a_map_is_a_sequence_of_tokens(router: str, pool) -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=6, routing=router, pool=pool).eval()
    maps = torch.randn(2, 12, 3, 4)
    torch.testing.assert_close(head(maps).poses, head(maps.flatten(2).transpose(1, 2)).poses)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("router", sorted(set(ROUTERS) - {"random"}))
def test_padding_changes_nothing(router: str, pool) -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=6, routing=router, pool=pool).eval()
    tokens, mask = torch.randn(2, 5, 12), torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    longer = torch.cat([tokens, torch.full((2, 4, 12), 7.0)], 1)
    wide = torch.cat([mask, torch.zeros(2, 4, dtype=torch.bool)], 1)
    out = head(tokens, mask)
    torch.testing.assert_close(head(longer, wide), out, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head(tokens[:1, :3]).poses, out.poses[:1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.trace(longer, wide).routed.poses, out.poses, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("router", ["dynamic", "kmeans", "self_routing", "heinsen"])
def test_values_of_masked_tokens_change_nothing(router: str, pool) -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=6, routing=router, pool=pool).eval()
    tokens, mask = torch.randn(2, 5, 12), torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    other = tokens.clone()
    other[0, 3:] = 100.0
    torch.testing.assert_close(head(other, mask).poses, head(tokens, mask).poses)
    assert not torch.allclose(head(tokens).poses[0], head(tokens, mask).poses[0])
    torch.testing.assert_close(head(tokens, mask).poses[1], head(tokens).poses[1])


def test_pooling_ignores_masked_tokens() -> None:
    torch.manual_seed(0)
    head = CapsHead(12, 3, caps=6).eval()
    tokens, mask = torch.randn(1, 5, 12), torch.tensor([[True, True, True, False, False]])
    torch.testing.assert_close(head(tokens, mask).poses, head(tokens[:, :3]).poses)


def test_masked_tokens_are_zero_capsules() -> None:
    torch.manual_seed(0)
    primary = FeatureCaps(12, 6, 4, pool="none").eval()
    capsules = primary(torch.randn(1, 3, 12), torch.tensor([[True, False, True]]))
    poses, activations = capsules.poses.view(3, 6, 4), capsules.activations.view(3, 6)
    assert not poses[1].any()
    assert not activations[1].any()
    assert poses[[0, 2]].all()
    assert activations[[0, 2]].all()


@pytest.mark.parametrize("activations", [False, True])
def test_dropout_drops_whole_capsules_in_training(activations: bool) -> None:
    torch.manual_seed(0)
    primary = FeatureCaps(12, 40, 4, dropout=0.5, activations=activations)
    capsules = primary(torch.randn(8, 12))
    dropped = capsules.activations == 0
    assert torch.equal(dropped, (capsules.poses == 0).all(-1))
    assert torch.equal(dropped, (capsules.poses == 0).any(-1))
    assert 0.3 < dropped.float().mean() < 0.7
    assert capsules.activations.max() <= 1
    assert not (primary.eval()(torch.randn(8, 12)).activations == 0).any()


def test_matrices_are_shared_by_positions() -> None:
    torch.manual_seed(0)
    layer = SharedCaps(4, 3, in_dim=8, out_dim=16, bias=True)
    poses = torch.randn(2, 2, 3, 4, 8)
    turned = poses.flip(1, 2)
    ours, theirs = (layer(Capsules(each, torch.ones(2, 2, 3, 4))).poses for each in (poses, turned))
    torch.testing.assert_close(ours, theirs)
    with raises_about(ShapeError, "poses:", "multiple of 4", "got (1, 6, 8)"):
        layer(Capsules(torch.zeros(1, 6, 8), torch.zeros(1, 6)))


def test_default_sizes_and_initial_weights() -> None:
    head = CapsHead(64, 10)
    assert head.classes.weight.shape[0] > 10
    assert 0.08 < float(head.classes.weight.detach().std()) < 0.1


@pytest.mark.parametrize("shape", [(2, 5, 11), (2, 11, 4, 4), (2, 11), (12,), (1, 12, 2, 2, 2)])
def test_features_of_another_shape(shape: tuple[int, ...]) -> None:
    with raises_about(ShapeError, "features:", f"got {shape}"):
        CapsHead(12, 3)(torch.zeros(shape))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shape", [(2, 0, 12), (2, 12, 0, 4)])
def test_features_without_a_token(shape: tuple[int, ...], pool) -> None:
    with raises_about(ShapeError, "features:", f"got {shape}"):
        CapsHead(12, 3, pool=pool)(torch.zeros(shape))


def test_mask_of_all_tokens() -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    with raises_about(ShapeError, "mask:", "got 0 in sample 1"):
        CapsHead(12, 3)(torch.zeros(3, 5, 12), mask)


@pytest.mark.parametrize("mask", [torch.ones(3, 4, dtype=torch.bool), torch.ones(3, 5)])
def test_invalid_masks(mask: torch.Tensor) -> None:
    with raises_about(ShapeError, "mask:", "(3, 5)", f"got {mask.dtype} {tuple(mask.shape)}"):
        CapsHead(12, 3)(torch.zeros(3, 5, 12), mask)


@pytest.mark.parametrize(
    ("name", "value"), [("caps", 0), ("dim", -1), ("pool", "max"), ("dropout", 1.0), ("dropout", -0.1)]
)
def test_options_out_of_range(name: str, value: object) -> None:
    with raises_about(ConfigError, f"{name}:", f"{value}"):
        CapsHead(12, 3, **{name: value})  # pyright: ignore[reportArgumentType]


def test_a_mask_under_export() -> None:
    head = CapsHead(12, 3, caps=6).eval()
    tokens, mask = torch.randn(2, 5, 12), torch.ones(2, 5, dtype=torch.bool)
    program = torch.export.export(head, (tokens, mask), strict=False)
    torch.testing.assert_close(program.module()(tokens, mask).poses, head(tokens, mask).poses, rtol=1e-4, atol=1e-5)
