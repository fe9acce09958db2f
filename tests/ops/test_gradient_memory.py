"""Dense layers whose backends are to store no tensor of the weight's size but its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from torchcaps import ops
from torchcaps.nn import CapsLinear
from torchcaps.types import Capsules

BACKENDS = [
    *((name, "recompute") for name in ("uniform", "random", "self_routing", "self_attention")),
    *((name, "cpu") for name in ("uniform", "random", "dynamic", "self_attention")),
]


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    # Eighths of it are one child.
    ops.set_votes_memory(8 * 4 * 5 * 4 * 6 * 6 / 2**20)
    yield
    ops.set_votes_memory(None)


class Allocated(TorchDispatchMode):
    """Keeps every result of an operation with memory of its own and at least some number of values."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.values, self.found = values, dict[int, Tensor]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, Tensor)}
        for item in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(item, Tensor) and item.numel() >= self.values:
                address = item.untyped_storage().data_ptr()
                if address not in given:
                    self.found[address] = item
        return out


@pytest.mark.parametrize(("name", "backend"), BACKENDS)
def test_only_the_gradient_has_the_size_of_the_weight(name: str, backend: str) -> None:
    layer = CapsLinear(60, 5, 4, 6, routing=name, backend=backend)
    for parameter in layer.routing.parameters():
        nn.init.normal_(parameter)
    poses = torch.randn(4, 60, 4, requires_grad=True)
    children = Capsules(poses, torch.rand(4, 60, requires_grad=layer.routing.reads_activations))
    with Allocated(layer.weight.numel()) as allocated:
        out = layer(children)
        grads = torch.autograd.grad(out.poses.square().sum(), [poses, layer.weight])
    assert list(allocated.found) == [grads[1].untyped_storage().data_ptr()]


@pytest.mark.parametrize("name", ["uniform", "random", "self_routing", "self_attention"])
def test_closed_forms_have_second_derivatives(name: str) -> None:
    torch.manual_seed(0)
    layer = CapsLinear(7, 3, 2, 3, routing=name, backend="recompute").double()
    parameters = {key: torch.randn_like(value) for key, value in layer.named_parameters()}
    poses, activations = torch.randn(2, 7, 2).double(), torch.rand(2, 7).double()
    ops.set_votes_memory(8 * 8 * 2 * 3 * 3 * 2 / 2**20)

    def run(poses: Tensor, activations: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        out = torch.func.functional_call(layer, given, (Capsules(poses, activations),))
        return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1) + 0 * activations.sum()

    inputs = [tensor.requires_grad_() for tensor in (poses, activations, *parameters.values())]
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)
