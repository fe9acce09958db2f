"""EM routing in its exported form, compared with the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps import ops
from torchcaps.ops import Window
from torchcaps.ops.em import export
from torchcaps.types import Capsules

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sharpness": {"sharpness": [0.25, 0.5, 1.0]},
    "momentum": {"momentum": 0.1},
    "background": {"background": -3.0},
    "learned background": {"background": torch.tensor(-1.0)},
    "types": {"start": "types"},
    "large votes": {"scale": 20.0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("competition", ["global", "local", "positions"])
@pytest.mark.parametrize(
    ("stride", "shared", "coordinates", "block"), [(1, False, True, None), (2, True, False, None), (1, False, True, 3)]
)
def test_export_form_matches_reference(
    options: dict[str, Any],
    competition: Any,
    stride: int,
    shared: bool,
    coordinates: bool,
    block: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    if block:
        # Blocks of three and of one of the four parents: twelve positions with 27 children each.
        monkeypatch.setattr(export, "BLOCK", 12 * 27 * 16 * block)
    options = dict(options)
    poses = options.pop("scale", 1.0) * torch.randn(2, 5, 6, 3, 16)
    children = Capsules(poses, torch.rand(2, 5, 6, 3))
    weight = 0.5 * torch.randn(3 if shared else 27, 4, 4, 4)
    offsets = torch.rand(9, 2) if coordinates else None
    window = Window((5, 6), (3, 3), stride, competition=competition, offsets=offsets)
    params = {
        "beta_u": 0.3 * torch.randn(4),
        "beta_a": 0.3 * torch.randn(4),
        "inverse_temp": [0.1, 0.2, 0.3],
        **options,
    }
    ours = export.conv(children, weight, window, **params)
    theirs = ops.route_conv(children, weight, window, "em", backend="reference", **params)
    torch.testing.assert_close(ours.poses, theirs.poses, rtol=1e-3, atol=1e-4 * float(poses.abs().max()))
    torch.testing.assert_close(ours.activations, theirs.activations, rtol=1e-3, atol=1e-4)


def test_children_without_activation_give_the_reference() -> None:
    children = Capsules(torch.randn(1, 3, 3, 2, 16), torch.zeros(1, 3, 3, 2))
    window = Window((3, 3), (2, 2))
    betas: dict[str, Any] = {"beta_u": torch.zeros(3), "beta_a": torch.zeros(3)}
    weight = torch.randn(8, 3, 4, 4)
    ours = export.conv(children, weight, window, **betas)
    theirs = ops.route_conv(children, weight, window, "em", backend="reference", **betas)
    torch.testing.assert_close(ours.poses, theirs.poses, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.activations, theirs.activations)


def test_form_serves_exported_graphs_only() -> None:
    children = Capsules(torch.randn(1, 3, 3, 2, 16), torch.rand(1, 3, 3, 2))
    reason = export.unsupported(children, torch.randn(8, 3, 4, 4), window=Window((3, 3), (2, 2)))
    assert reason is not None
    assert "auto" in reason
