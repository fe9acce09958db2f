"""Floating-point operations of layers, as `FlopCounterMode` counts them."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from fresh import run_fresh
from torchcaps.nn import CapsConv2d, CapsLinear
from torchcaps.ops import _native
from torchcaps.ops._routing import ROUTINGS
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))

# Dense: 2 samples, 6 children of 4 entries, 3 parents of 5. Convolutional: a 3x3 kernel on a grid of 5x4 with
# 2 types of children, so 3x2 positions, and 4x4 matrices for 3 types of parents.
DENSE = 2 * 2 * 6 * 3 * 4 * 5
CONV = 2 * 2 * (3 * 2) * (9 * 2) * 3 * 4 * 16


def dense_children() -> Capsules:
    return Capsules(torch.randn(2, 6, 4), torch.rand(2, 6))


def conv_children() -> Capsules:
    return Capsules(torch.randn(2, 5, 4, 2, 16), torch.rand(2, 5, 4, 2))


def make_layer(name: str, layer: str, backend: str) -> torch.nn.Module:
    if layer == "dense":
        return CapsLinear(6, 3, 4, 5, routing=name, backend=backend)
    return CapsConv2d(2, 3, 3, routing=name, backend=backend)


def count(layer: torch.nn.Module, children: Capsules) -> tuple[dict[str, int], dict[str, int]]:
    """The operations of each operator in the forward and in the backward pass."""
    poses = children.poses.requires_grad_()
    found = []
    with FlopCounterMode(display=False) as counter:
        parents = layer(Capsules(poses, children.activations))
    found.append(counter.get_flop_counts()["Global"])
    with FlopCounterMode(display=False) as counter:
        (parents.poses.sum() + parents.activations.sum()).backward()
    found.append(counter.get_flop_counts()["Global"])
    forward, backward = ({str(op).removeprefix("torchcaps."): n for op, n in part.items()} for part in found)
    return forward, backward


def test_dynamic_dense() -> None:
    layer = CapsLinear(6, 3, 4, 5, routing="dynamic", backend="cpu")
    forward, backward = count(layer, dense_children())
    assert forward == {"dynamic_routing": 3 * DENSE}
    # Three passes over the votes, and the gradients of poses and weight.
    assert backward == {"dynamic_routing_backward": (3 + 2) * DENSE}


def test_only_needed_gradients_are_counted() -> None:
    layer = CapsLinear(6, 3, 4, 5, routing={"name": "dynamic", "iters": 1}, backend="cpu").requires_grad_(False)
    _, backward = count(layer, dense_children())
    assert backward == {"dynamic_routing_backward": DENSE}


def test_em_conv() -> None:
    layer = CapsConv2d(2, 3, 3, routing={"name": "em", "iters": 2}, backend="cpu")
    forward, backward = count(layer, conv_children())
    # The first iteration takes two passes.
    assert forward == {"em_routing": 3 * CONV}
    assert backward == {"em_routing_backward": (2 + 2) * CONV}


@pytest.mark.parametrize("layer", ["dense", "conv"])
@pytest.mark.parametrize("name", ROUTINGS.names())
def test_recompute_counts_the_votes(name: str, layer: str) -> None:
    if layer == "dense" and name in ("heinsen", "random", "self_attention", "self_routing", "uniform"):
        pytest.skip("a closed form, whose products torch counts")
    made = make_layer(name, layer, "recompute")
    forward, backward = count(made, dense_children() if layer == "dense" else conv_children())
    votes = DENSE if layer == "dense" else CONV
    assert forward["recompute"] == votes
    assert backward["recompute_backward"] == 3 * votes


@pytest.mark.parametrize(
    ("name", "layer", "backend"),
    [
        (name, layer, kernel.backend)
        for name in ROUTINGS.names()
        for kernel in ROUTINGS[name].kernels
        for layer in ("dense", "conv")
        if getattr(kernel, layer) is not None and kernel.backend not in ("triton", "export")
    ],
)
def test_every_kernel_is_counted(name: str, layer: str, backend: str) -> None:
    made = make_layer(name, layer, backend)
    forward, backward = count(made, dense_children() if layer == "dense" else conv_children())
    assert sum(forward.values()) > 0
    assert sum(backward.values()) > 0


def test_triton_counts_like_the_other_kernel() -> None:
    poses, weight = torch.empty(2, 6, 4, device="meta"), torch.empty(6, 3, 4, 5, device="meta")
    with FlopCounterMode(display=False) as counter:
        torch.ops.torchcaps.dynamic_triton(poses, weight, None, 3, False, True)
    assert counter.get_total_flops() == 3 * DENSE


def test_every_operator_has_a_formula() -> None:
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("torchcaps::")}
    assert names
    for name in names:
        assert getattr(torch.ops.torchcaps, name.removeprefix("torchcaps::")) in flop_registry, name


def test_the_counter_is_not_imported_before_it_is_used() -> None:
    script = """
import sys, torchcaps.ops, torch
assert "torch.utils.flop_counter" not in sys.modules
from torch.utils.flop_counter import flop_registry
assert torch.ops.torchcaps.recompute in flop_registry
assert not any(type(finder).__module__ == "torchcaps.ops._flops" for finder in sys.meta_path)
"""
    done = run_fresh(script)
    assert done.returncode == 0, done.stderr
