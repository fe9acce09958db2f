"""The backend `recompute` of every routing: values, gradients, pieces of a batch, types and compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import torchcaps as tc
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import ROUTERS, CapsConv2d, CapsLinear, ClassCaps
from torchcaps.ops import ROUTINGS, _backends, _pieces
from torchcaps.ops._recompute import route_in_pieces
from torchcaps.testing import assert_matches_reference

Layer = CapsLinear | CapsConv2d | ClassCaps
# A layer and the shape of its children.
Case = tuple[Layer, tuple[int, ...]]

DENSE: dict[str, Callable[[str], Case]] = {
    "odd sizes": lambda name: (CapsLinear(33, 5, 3, 7, routing=name), (5, 33, 3)),
    "shared weight": lambda name: (CapsLinear(None, 3, 4, 6, routing=name), (5, 9, 4)),
    "one child": lambda name: (CapsLinear(1, 3, 4, 4, routing=name), (3, 1, 4)),
    "one parent": lambda name: (CapsLinear(9, 1, 4, 5, routing=name), (3, 9, 4)),
}
CONV: dict[str, Callable[[str], Case]] = {
    "matrices": lambda name: (CapsConv2d(2, 3, 3, 2, routing=name), (5, 7, 5, 2, 16)),
    "vectors": lambda name: (CapsConv2d(2, 3, 2, dims=(4, 6), pose="vector", routing=name), (3, 4, 3, 2, 4)),
    "local": lambda name: (CapsConv2d(2, 3, 2, routing=name, competition="local"), (3, 4, 4, 2, 16)),
    "positions": lambda name: (CapsConv2d(2, 3, 2, 2, routing=name, competition="positions"), (3, 4, 4, 2, 16)),
    "one child": lambda name: (CapsConv2d(1, 1, 1, routing=name), (3, 2, 2, 1, 16)),
    "classes": lambda name: (ClassCaps(2, 3, routing=name, centres=([0.2, 0.7], [0.1, 0.5, 0.9])), (3, 2, 3, 2, 16)),
}
CASES = {**{f"dense, {name}": make for name, make in DENSE.items()}, **{f"grid, {n}": make for n, make in CONV.items()}}
every_router = pytest.mark.parametrize("name", sorted(ROUTERS))


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave variational routing its reference and `recompute`."""
    plain = replace(ROUTINGS["variational"], kernels=())
    monkeypatch.setattr(ROUTINGS, "_items", {**ROUTINGS._items, "variational": plain})


@pytest.fixture(autouse=True)
def default_memory() -> Iterator[None]:
    yield
    ops.set_votes_memory(None)


def make_case(make: Callable[[str], Case], name: str) -> tuple[Layer, list[Tensor]]:
    torch.manual_seed(0)
    layer, shape = make(name)
    # Random parameters, because initial values may have no effect.
    for parameter in layer.routing.parameters():
        nn.init.normal_(parameter)
    # A last axis with gaps: the children are not contiguous.
    poses = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    return layer, [poses, torch.rand(shape[:-1]), *layer.parameters()]


def run(layer: Layer, backend: str, poses: Tensor, activations: Tensor, *parameters: Tensor) -> Tensor:
    layer.backend = backend
    values = dict(zip(dict(layer.named_parameters()), parameters, strict=True))
    out: tc.Capsules = functional_call(layer, values, (tc.Capsules(poses, activations),))
    # Activations that a routing does not read have no gradient; a zero of them gives one.
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1) + 0 * activations.sum()


def samples_memory(layer: Layer, poses: Tensor, samples: float) -> float:
    """Megabytes of the votes of a number of samples."""
    children = tc.Capsules(poses, poses[..., 0])
    window = None if isinstance(layer, CapsLinear) else layer.window(children)
    return samples * _pieces._bytes_per_sample(poses, layer.weight, window) / 2**20


@every_router
@pytest.mark.parametrize("case", CASES)
def test_matches_the_reference(name: str, case: str) -> None:
    layer, inputs = make_case(CASES[case], name)
    for samples in (0.3, 1.0, 2.0):
        ops.set_votes_memory(samples_memory(layer, inputs[0], samples))
        assert_matches_reference(
            lambda *tensors: run(layer, "recompute", *tensors),
            lambda *tensors: run(layer, "reference", *tensors),
            inputs,
            factor=4,
            draws=4 if name == "heinsen" else 1,
        )


@every_router
@pytest.mark.parametrize("case", ["dense, odd sizes", "grid, matrices"])
def test_one_piece_has_the_bits_of_the_reference(name: str, case: str) -> None:
    layer, inputs = make_case(CASES[case], name)
    children = tc.Capsules(inputs[0], inputs[1])
    window = None if isinstance(layer, CapsLinear) else layer.window(children)
    params = layer.routing.params(children, window)
    name = layer.routing.algorithm
    got = route_in_pieces(children, layer.weight, window, routing=name, second_derivatives=False, **params)
    layer.backend = "reference"
    for ours, theirs in zip(got, layer(children), strict=True):
        assert torch.equal(ours, theirs)


@every_router
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["dense, odd sizes", "dense, shared weight", "grid, matrices"])
@pytest.mark.parametrize("backend", ["auto", "recompute"])
def test_sixteen_bits(name: str, dtype: torch.dtype, case: str, backend: str) -> None:
    layer, inputs = make_case(CASES[case], name)
    ops.set_votes_memory(samples_memory(layer, inputs[0], 1))
    assert_matches_reference(
        lambda *tensors: run(layer, backend, *tensors),
        lambda *tensors: run(layer, "reference", *tensors),
        inputs,
        dtype=dtype,
        factor=8,
    )


def test_autocast_changes_nothing() -> None:
    layer, inputs = make_case(CASES["dense, odd sizes"], "variational")
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    expected = run(layer, "recompute", *leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(layer, "recompute", *leaves)
    assert torch.equal(got, expected)
    ours, theirs = (torch.autograd.grad(out.sum(), leaves) for out in (got, expected))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("case", ["dense, odd sizes", "dense, shared weight", "grid, matrices"])
def test_each_gradient_alone(case: str, wanted: int) -> None:
    layer, inputs = make_case(CASES[case], "em")
    ops.set_votes_memory(samples_memory(layer, inputs[0], 2))
    grads: list[Tensor] = []
    for backend in ("recompute", "reference"):
        leaves = [tensor.detach().double().requires_grad_(k == wanted) for k, tensor in enumerate(inputs)]
        grads += torch.autograd.grad(run(layer, backend, *leaves).square().sum(), leaves[wanted])
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(("name", "start"), [("dynamic", "logits"), ("kmeans", "logits"), ("attention", "parents")])
def test_tensors_with_an_axis_for_the_samples(name: str, start: str) -> None:
    torch.manual_seed(0)
    poses, weight = torch.randn(5, 6, 4), torch.randn(6, 3, 4, 2)
    given = torch.randn(5, 6, 3) if start == "logits" else torch.randn(5, 3, 2)
    grid, matrices = torch.randn(3, 4, 3, 2, 4), torch.randn(8, 3, 4, 2)
    window = ops.Window((4, 3), (2, 2), competition="local", pose="vector")
    given_grid = torch.randn(3 * 3 * 2, 8, 3) if start == "logits" else torch.randn(3 * 3 * 2, 3, 2)
    ops.set_votes_memory(1e-4)

    def dense(backend: str, poses: Tensor, weight: Tensor, given: Tensor) -> Tensor:
        children = tc.Capsules(poses, poses[..., 0])
        return ops.route(children, weight, name, backend=backend, **{start: given}).poses

    def conv(backend: str, poses: Tensor, weight: Tensor, given: Tensor) -> Tensor:
        children = tc.Capsules(poses, poses[..., 0])
        return ops.route_conv(children, weight, window, name, backend=backend, **{start: given}).poses

    for call, inputs in ((dense, [poses, weight, given]), (conv, [grid, matrices, given_grid])):
        assert_matches_reference(
            lambda *tensors, call=call: call("recompute", *tensors),
            lambda *tensors, call=call: call("reference", *tensors),
            inputs,
            factor=4,
            draws=4,
        )


def test_pieces_cover_the_batch_and_the_rows() -> None:
    poses, weight = torch.zeros(5, 6, 4), torch.zeros(6, 3, 4, 2)
    each = 6 * 3 * 2 * 4
    assert [piece.samples for piece in _pieces.split_batch(poses, weight, None, 2 * each)] == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 5),
    ]
    assert len(_pieces.split_batch(poses, weight, None, 1)) == 5
    grid, matrices = torch.zeros(2, 9, 5, 3, 16), torch.zeros(27, 4, 4, 4)
    for window, rows in (
        (ops.Window((9, 5), (3, 3), 1, "local"), 7),
        (ops.Window((9, 5), (3, 3), 3, "global"), 3),
        (ops.Window((9, 5), (3, 3), 1, "global"), 1),
    ):
        pieces = _pieces.split_batch(grid, matrices, window, 1)
        assert len(pieces) == 2 * rows
        assert sum(piece.parents(torch.ones(2, *window.positions)).sum() for piece in pieces) == torch.tensor(
            2 * window.positions[0] * window.positions[1]
        )


def test_an_empty_batch() -> None:
    layer = CapsLinear(6, 3, 4, 5, routing="variational", backend="recompute")
    poses = torch.randn(0, 6, 4, requires_grad=True)
    out = layer(tc.Capsules(poses, torch.zeros(0, 6)))
    assert out.poses.shape == (0, 3, 5)
    assert torch.autograd.grad(out.poses.sum(), [poses, layer.weight])[1].abs().max() == 0


@pytest.mark.parametrize("megabytes", [0, -1, float("inf"), float("nan")])
def test_memory_is_checked(megabytes: float) -> None:
    with raises_about(ConfigError, "megabytes", megabytes):
        ops.set_votes_memory(megabytes)


def test_memory_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_pieces.VARIABLE, "3")
    ops.set_votes_memory(None)
    assert _pieces.votes_bytes(torch.device("cpu")) == 3 * 2**20
    monkeypatch.setenv(_pieces.VARIABLE, "much")
    with raises_about(ConfigError, _pieces.VARIABLE, "much"):
        ops.set_votes_memory(None)
    monkeypatch.delenv(_pieces.VARIABLE)


def chosen(name: str, children: tc.Capsules, weight: Tensor, backend: str = "auto", **params: Any) -> str:
    kernel = _backends.choose_kernel(ROUTINGS[name], backend, children, weight, None, params)
    return "reference" if kernel is None else kernel.backend


@pytest.mark.usefixtures("no_kernels")
def test_auto_takes_it_where_votes_are_large() -> None:
    children, weight = tc.Capsules(torch.randn(5, 6, 4), torch.rand(5, 6)), torch.randn(6, 3, 4, 2)
    assert chosen("variational", children, weight) == "reference"
    ops.set_votes_memory(1e-4)
    assert chosen("variational", children, weight) == "recompute"
    assert chosen("heinsen", children, weight) == "recompute"
    assert chosen("variational", children, weight.to(torch.int64)) == "recompute"
    whole = tc.Capsules(torch.ones(5, 6, 4, dtype=torch.int64), torch.ones(5, 6))
    assert chosen("variational", whole, weight.to(torch.int64)) == "reference"


def test_function_option_uses_the_reference() -> None:
    children, weight = tc.Capsules(torch.randn(5, 6, 4), torch.rand(5, 6)), torch.randn(6, 3, 4, 2)
    ops.set_votes_memory(1e-4)
    assert chosen("kuramoto", children, weight, softmax=ops.parent_softmax) == "reference"
    with raises_about(ConfigError, "backend", "'recompute'", "'softmax'"):
        chosen("kuramoto", children, weight, "recompute", softmax=ops.parent_softmax)


@pytest.mark.usefixtures("no_kernels")
def test_gradient_of_a_gradient() -> None:
    layer, inputs = make_case(CASES["dense, odd sizes"], "variational")
    ops.set_votes_memory(1e-4)

    def second(backend: str) -> list[Tensor]:
        leaves = [tensor.detach().double().requires_grad_() for tensor in inputs]
        out = run(layer, backend, *leaves)
        grads = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(torch.stack([grad.square().sum() for grad in grads]).sum(), leaves))

    with pytest.warns(UserWarning, match="stores all votes"):
        got = second("auto")
    for ours, theirs in zip(got, second("reference"), strict=True):
        torch.testing.assert_close(ours, theirs)
    with raises_about(ConfigError, "backend", "'recompute'", "first derivatives"):
        second("recompute")


@pytest.mark.usefixtures("no_kernels")
# The first use of forward-mode derivatives compiles decompositions with torch.jit.script.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_mode_takes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backends, "_warned_stored", False)
    layer, (poses, activations, *parameters) = make_case(CASES["dense, odd sizes"], "variational")
    ops.set_votes_memory(1e-4)
    tangents = []
    for backend in ("auto", "reference"):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(poses, torch.ones_like(poses))
            if backend == "auto":
                with pytest.warns(UserWarning, match="variational routing stores all votes"):
                    out = run(layer, backend, dual, activations, *parameters)
            else:
                out = run(layer, backend, dual, activations, *parameters)
            tangents.append(torch.autograd.forward_ad.unpack_dual(out).tangent)
    assert torch.equal(*tangents)
    with torch.autograd.forward_ad.dual_level(), raises_about(ConfigError, "backend", "'recompute'", "forward-mode"):
        run(layer, "recompute", poses, activations, *parameters)


# torch makes an object of an autograd function while it traces one.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@every_router
@pytest.mark.parametrize("case", ["dense, odd sizes", "grid, matrices"])
def test_compiled_layer_is_one_graph(name: str, case: str) -> None:
    torch.compiler.reset()
    layer, (poses, activations, *_) = make_case(CASES[case], name)
    layer.backend = "recompute"
    ops.set_votes_memory(samples_memory(layer, poses, 2))
    # The closed form of random routing draws numbers from a generator, which breaks the graph.
    one_graph = not (name == "random" and isinstance(layer, CapsLinear))
    compiled = torch.compile(layer, fullgraph=one_graph, backend="aot_eager")
    results: list[tuple[Tensor, ...]] = []
    for call in (layer, compiled):
        leaf = poses.clone().requires_grad_()
        out: tc.Capsules = call(tc.Capsules(leaf, activations))
        grads = torch.autograd.grad([*out], [leaf, layer.weight], [torch.ones_like(part) for part in out])
        results.append((*out, *grads))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_opcheck() -> None:
    layer, (poses, activations, *_) = make_case(CASES["grid, matrices"], "em")
    assert isinstance(layer, CapsConv2d)
    betas = [torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)]
    arguments = ("em", poses.requires_grad_(), activations.requires_grad_(), layer.weight, None, betas)
    torch.library.opcheck(
        torch.ops.torchcaps.recompute.default,
        (*arguments, "beta_u beta_a", "{'iters': 2}", [7, 5, 3, 3, 2], "global matrix", 10_000, True),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


def test_saved_tensors_are_the_inputs() -> None:
    layer, inputs = make_case(CASES["dense, odd sizes"], "kuramoto")
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer.backend = "recompute"
        values = dict(zip(dict(layer.named_parameters()), leaves[2:], strict=True))
        functional_call(layer, values, (tc.Capsules(leaves[0], leaves[1]),))
    assert sum(saved) <= sum(tensor.numel() for tensor in inputs)
