from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, SelfRouting
from torchcaps.ops import _native, fastest_backend
from torchcaps.ops.self_routing import cpu
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

LEVELS = ["portable", "avx2", "avx512"]
missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def kernel(poses: Tensor, weight: Tensor, activations: Tensor, route_weight: Tensor, bias: Tensor | None) -> Tensor:
    out = cpu.dense(Capsules(poses, activations), weight, route_weight=route_weight, route_bias=bias)
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)


def reference(poses: Tensor, weight: Tensor, activations: Tensor, route_weight: Tensor, bias: Tensor | None) -> Tensor:
    votes = ops.vote(poses, weight)
    out, presence, _ = ops.self_routing(votes, activations, poses, route_weight=route_weight, route_bias=bias)
    return torch.cat([out, presence.unsqueeze(-1)], dim=-1)


def make_inputs(sizes: tuple[int, ...], *, shared: bool = False) -> list[Tensor]:
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    own = () if shared else (children,)
    return [
        torch.randn(batch, children, in_dim, generator=generator),
        torch.randn(*own, parents, in_dim, out_dim, generator=generator),
        torch.rand(batch, children, generator=generator),
        torch.randn(*own, parents, in_dim, generator=generator),
        torch.randn(*own, parents, generator=generator),
    ]


def op_inputs() -> list[Tensor]:
    """What the operator takes: logits, activations, poses, weight, with the samples last in the first two."""
    poses, weight, activations, *_ = make_inputs((3, 9, 3, 4, 6))
    return [torch.randn(9, 3, 3), activations.T, poses, weight]


# Batch, children, parents, child pose, parent pose: around the sizes of vectors (2 to 16) and of blocks of children.
SIZES = [
    (1, 1, 1, 1, 1),
    (2, 1, 4, 3, 5),
    (3, 7, 1, 4, 4),
    (5, 9, 3, 8, 16),
    (16, 20, 10, 8, 16),
    (17, 33, 2, 5, 7),
    (33, 12, 4, 16, 31),
    (4, 70, 3, 65, 3),
    (140, 3, 2, 2, 9),
]


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
def test_odd_sizes(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_matches_reference(kernel, reference, make_inputs(sizes), dtype=dtype, factor=4)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 3, 5), (3, 7, 5, 3, 6), (5, 33, 3, 4, 17)])
def test_shared_weight(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    assert_matches_reference(kernel, reference, make_inputs(sizes, shared=True), dtype=dtype, factor=4)


@needs_kernel
def test_shared_gate_without_bias() -> None:
    poses, weight, activations, *_ = make_inputs((5, 9, 3, 4, 6))
    assert_matches_reference(kernel, reference, [poses, weight, activations, torch.randn(3, 4), None], factor=4)


@needs_kernel
def test_non_contiguous_inputs() -> None:
    poses, weight, activations, route_weight, bias = make_inputs((6, 10, 4, 8, 5))
    strange = [tensor.mT.contiguous().mT for tensor in (poses, weight, activations, route_weight, bias)]
    assert not any(tensor.is_contiguous() for tensor in strange)
    assert_matches_reference(kernel, reference, strange, factor=4)
    some = [poses[:, ::2], weight[::2], activations[:, ::2], route_weight[::2], bias[::2]]
    assert_matches_reference(kernel, reference, some, factor=4)


@needs_kernel
@pytest.mark.parametrize("only", range(4))
def test_gradients_only_where_required(only: int) -> None:
    inputs = op_inputs()
    every = [tensor.clone().requires_grad_() for tensor in inputs]
    some = [tensor.clone().requires_grad_(number == only) for number, tensor in enumerate(inputs)]
    for leaves in (every, some):
        total, mass = torch.ops.torchcaps.self_routing(*leaves)
        (total.square().sum() + mass.square().sum()).backward()
    expected, found = every[only].grad, some[only].grad
    assert expected is not None
    assert found is not None
    assert torch.equal(expected, found)
    assert [leaf.grad is not None for leaf in some] == [number == only for number in range(4)]


@needs_kernel
@pytest.mark.parametrize("shape", [(0, 4, 3, 8, 5), (2, 0, 3, 8, 5)])
def test_no_children(shape: tuple[int, ...]) -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs(shape)]
    out = kernel(*inputs)
    assert torch.equal(out, torch.zeros(shape[0], 3, 6))
    for grad in torch.autograd.grad(out.sum(), inputs):
        assert torch.equal(grad, torch.zeros_like(grad))


@needs_kernel
def test_inactive_children_are_finite() -> None:
    inputs = make_inputs((2, 5, 3, 4, 6))
    leaves = [tensor.requires_grad_() for tensor in (*inputs[:2], torch.zeros(2, 5), *inputs[3:])]
    out = kernel(*leaves)
    assert not out.any()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), leaves))


@needs_kernel
@pytest.mark.parametrize("place", [0, 2])
def test_nan_propagates(place: int) -> None:
    inputs = make_inputs((2, 5, 3, 4, 4))
    inputs[place][1, 2] = float("nan")
    out = kernel(*inputs)
    assert out[1].isnan().all()
    assert out[0].isfinite().all()


@needs_kernel
def test_same_bits_for_any_thread_count() -> None:
    poses, weight, activations, *_ = make_inputs((70, 300, 4, 8, 16))
    inputs = [tensor.requires_grad_() for tensor in (torch.randn(300, 4, 70), activations.T, poses, weight)]
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5, 2):
        torch.set_num_threads(threads)
        total, mass = torch.ops.torchcaps.self_routing(*inputs)
        given = [torch.ones_like(total), torch.ones_like(mass)]
        results.append([total, mass, *torch.autograd.grad([total, mass], inputs, given)])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_kept(dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in make_inputs((4, 20, 3, 8, 16))]
    out = kernel(*inputs)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert {out.dtype, *(grad.dtype for grad in grads)} == {dtype}
    # Only the logits are computed in half precision.
    expected = reference(*(tensor.float() for tensor in inputs))
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.05)


@needs_kernel
def test_double_backward_names_reference() -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs((2, 5, 3, 4, 4))]
    (grad,) = torch.autograd.grad(kernel(*inputs).sum(), inputs[:1], create_graph=True)
    with raises_about(ConfigError, "backend", "'cpu'"):
        grad.sum().backward()


@needs_kernel
@pytest.mark.parametrize("in_caps", [7, None])
def test_layer_uses_it_by_default(in_caps: int | None) -> None:
    assert fastest_backend("self_routing", torch.device("cpu"), torch.float32) == "cpu"
    assert fastest_backend("self_routing", torch.device("meta"), torch.float32) == "recompute"
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=SelfRouting(), backend="cpu")
    poses = torch.randn(2, 7, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))


def test_errors_name_the_argument() -> None:
    poses, weight, activations, route_weight, bias = make_inputs((2, 5, 3, 4, 6))
    with raises_about(ShapeError, "poses", "5 children"):
        kernel(torch.zeros(2, 6, 4), weight, torch.zeros(2, 6), torch.zeros(3, 4), None)
    with raises_about(ShapeError, "route_weight", "(4, 4)"):
        kernel(poses, weight, activations, torch.zeros(4, 4), None)
    with raises_about(ShapeError, "activations", "(2, 1)"):
        kernel(poses, weight, activations[:, :1], route_weight, bias)


# Each instruction set needs a process of its own, because it is chosen once.
@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("level", LEVELS)
def test_lower_instruction_sets(level: str) -> None:
    if LEVELS.index(level) >= LEVELS.index(_native.instruction_set()):
        pytest.skip("only what is below the one that this process tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::test_odd_sizes"],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
