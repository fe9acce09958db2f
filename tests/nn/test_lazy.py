from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tests.raising import raises_about

from torchcaps import nn
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.types import Capsules


def children() -> Capsules:
    torch.manual_seed(3)
    return Capsules(torch.randn(2, 3, 3, 2, 4), torch.rand(2, 3, 3, 2))


@pytest.mark.parametrize("name", nn.list_routers())
def test_equals_a_layer_with_known_sizes(name: str) -> None:
    lower = children()
    torch.manual_seed(0)
    expected = nn.CapsLinear(18, 3, 4, 5, routing=name)(lower)
    layer = nn.LazyCapsLinear(3, 5, routing=name)
    torch.manual_seed(0)
    found = layer(lower)
    assert type(layer).__name__ == "CapsLinear"
    assert layer.in_caps == 18
    torch.testing.assert_close(found.poses, expected.poses, rtol=0, atol=0)
    found.poses.sum().backward()
    assert layer.weight.grad is not None


def test_trace_creates_the_parameters() -> None:
    lazy = nn.LazyCapsLinear(3, 5)
    assert "in_caps=?" in repr(lazy)
    assert lazy.trace(children(), iters=2).votes.shape == (2, 18, 3, 5)
    assert "in_caps=18, out_caps=3, in_dim=4, out_dim=5" in repr(lazy)


@pytest.mark.parametrize("name", ["dynamic", "self_attention", "self_routing"])
def test_loads_weights_before_it_sees_children(name: str) -> None:
    known = nn.CapsLinear(18, 3, 4, 5, routing=name)
    lazy = nn.LazyCapsLinear(3, 5, routing=name)
    lazy.load_state_dict(known.state_dict())
    torch.testing.assert_close(lazy(children()).poses, known(children()).poses, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        nn.LazyCapsLinear(4, 5).load_state_dict(nn.CapsLinear(18, 3, 4, 5).state_dict())


def test_type_and_copies_before_the_first_call() -> None:
    lazy = nn.LazyCapsLinear(3, 5, bias=True).to(torch.float64)
    for each in (lazy, copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        poses, activations = children()
        assert each(Capsules(poses.double(), activations.double())).poses.dtype == torch.float64
        assert each.bias is not None
        assert each.bias.tolist() == [[pytest.approx(0.1)] * 5] * 3


def test_mask_of_the_first_call() -> None:
    lazy = nn.LazyCapsLinear(3, 5)
    mask = torch.zeros(2, 3, 3, 2, dtype=torch.bool)
    assert lazy(children(), mask).poses.abs().max() == 0
    assert lazy(children(), mask=~mask).poses.abs().max() > 0


def test_later_children_must_have_the_same_number() -> None:
    lazy = nn.LazyCapsLinear(3, 5)
    lazy(children())
    with raises_about(ShapeError, "poses", "17"):
        lazy(Capsules(torch.randn(2, 17, 4), torch.rand(2, 17)))


def test_wrong_sizes() -> None:
    with raises_about(ConfigError, "in_caps", "auto", "LazyCapsLinear"):
        nn.CapsLinear("auto", 3, 4, 5)  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "out_caps", "0"):
        nn.LazyCapsLinear(0, 5)
    with raises_about(ShapeError, "children", "Tensor"):
        nn.LazyCapsLinear(3, 5)(torch.randn(2, 18, 4))
