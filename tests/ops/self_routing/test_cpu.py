from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, SelfRouting
from torchcaps.ops import _dispatch, _library
from torchcaps.ops.self_routing import cpu
from torchcaps.ops.self_routing.cpu import weigh
from torchcaps.testing import assert_matches
from torchcaps.types import Capsules

LEVELS = ["portable", "avx2", "avx512"]
missing = cpu.why_missing()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def reference(share: Tensor, poses: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("ijb,bijd->bjd", share, ops.vote(poses, weight))


def make_inputs(sizes: tuple[int, ...], *, shared: bool = False) -> list[Tensor]:
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    share = torch.randn(children, parents, batch, generator=generator)
    poses = torch.randn(batch, children, in_dim, generator=generator)
    weight = torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim, generator=generator)
    return [share, poses, weight]


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
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_odd_sizes(sizes: tuple[int, ...], shared: bool, dtype: torch.dtype) -> None:
    assert_matches(weigh, reference, make_inputs(sizes, shared=shared), dtype=dtype, factor=4)


@needs_kernel
def test_tensors_that_are_not_contiguous() -> None:
    share, poses, weight = make_inputs((6, 10, 4, 8, 5))
    strange = [tensor.mT.contiguous().mT for tensor in (share, poses, weight)]
    assert not any(tensor.is_contiguous() for tensor in strange)
    assert_matches(weigh, reference, strange, factor=4)
    assert_matches(weigh, reference, [share[::2], poses[:, ::2], weight[::2]], factor=4)


@needs_kernel
@pytest.mark.parametrize("only", range(3))
def test_only_what_needs_a_gradient_gets_one(only: int) -> None:
    inputs = make_inputs((5, 9, 3, 8, 16))
    every = [tensor.clone().requires_grad_() for tensor in inputs]
    some = [tensor.clone().requires_grad_(number == only) for number, tensor in enumerate(inputs)]
    for leaves in (every, some):
        weigh(*leaves).square().sum().backward()
    expected, found = every[only].grad, some[only].grad
    assert expected is not None
    assert found is not None
    assert torch.equal(expected, found)
    assert [leaf.grad is not None for leaf in some] == [number == only for number in range(3)]


@needs_kernel
@pytest.mark.parametrize("shape", [(0, 4, 3, 8, 5), (2, 0, 3, 8, 5)])
def test_nothing_to_add_up(shape: tuple[int, ...]) -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs(shape)]
    out = weigh(*inputs)
    assert torch.equal(out, torch.zeros(shape[0], 3, 5))
    for grad in torch.autograd.grad(out.sum(), inputs):
        assert torch.equal(grad, torch.zeros_like(grad))


@needs_kernel
@pytest.mark.parametrize("place", range(2))
def test_nan_is_not_swallowed(place: int) -> None:
    inputs = make_inputs((2, 5, 3, 4, 4))
    inputs[place].select(2 - 2 * place, 1).fill_(float("nan"))
    out = weigh(*inputs)
    assert out[1].isnan().all()
    assert out[0].isfinite().all()


@needs_kernel
def test_threads_do_not_change_a_bit() -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs((70, 300, 4, 8, 16))]
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5, 2):
        torch.set_num_threads(threads)
        out = weigh(*inputs)
        results.append([out, *torch.autograd.grad(out, inputs, torch.ones_like(out))])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_computed_in_thirty_two(dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in make_inputs((4, 20, 3, 8, 16))]
    out = weigh(*inputs)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert {out.dtype, *(grad.dtype for grad in grads)} == {dtype}
    assert torch.equal(out, weigh(*(tensor.float() for tensor in inputs)).to(dtype))


@needs_kernel
def test_opcheck() -> None:
    inputs = make_inputs((3, 9, 3, 4, 6))
    torch.library.opcheck(torch.ops.torchcaps.weigh.default, tuple(tensor.requires_grad_() for tensor in inputs))
    given = tuple(tensor.detach() for tensor in inputs)
    for needed in ([True] * 3, [False, True, False]):
        torch.library.opcheck(torch.ops.torchcaps.weigh_backward.default, (*given, torch.randn(3, 3, 6), needed))


@needs_kernel
def test_gradient_of_a_gradient_says_what_to_use() -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs((2, 5, 3, 4, 4))]
    (grad,) = torch.autograd.grad(weigh(*inputs).sum(), inputs[:1], create_graph=True)
    with pytest.raises(ConfigError, match="backend: expected 'reference' for the gradient of a gradient, got 'cpu'"):
        grad.sum().backward()


def twin(poses: Tensor, weight: Tensor, activations: Tensor, route_weight: Tensor, bias: Tensor | None) -> Tensor:
    out = cpu.route(poses, weight, activations=activations, route_weight=route_weight, route_bias=bias)
    return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)


def paper(poses: Tensor, weight: Tensor, activations: Tensor, route_weight: Tensor, bias: Tensor | None) -> Tensor:
    votes = ops.vote(poses, weight)
    out, presence, _ = ops.self_routing(votes, activations, poses, route_weight=route_weight, route_bias=bias)
    return torch.cat([out, presence.unsqueeze(-1)], dim=-1)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [(3, 7, 5, 3, 6), (1, 1, 1, 1, 1), (17, 33, 3, 4, 17), (2, 1152, 10, 8, 16)])
def test_it_is_the_reference(size: tuple[int, ...], shared: bool, with_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    b, i, j, p, d = size
    own = () if shared else (i,)
    inputs = [
        torch.randn(b, i, p),
        torch.randn(*own, j, p, d),
        torch.rand(b, i),
        torch.randn(*own, j, p),
        torch.randn(*own, j) if with_bias else None,
    ]
    assert_matches(twin, paper, inputs, dtype=dtype, factor=4)


@needs_kernel
def test_children_that_are_not_there_are_finite() -> None:
    inputs = [torch.randn(2, 5, 4), torch.randn(5, 3, 4, 6), torch.zeros(2, 5), torch.randn(5, 3, 4), torch.zeros(5, 3)]
    leaves = [tensor.requires_grad_() for tensor in inputs]
    out = twin(*leaves)
    assert not out.any()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), leaves))


@needs_kernel
@pytest.mark.parametrize("in_caps", [7, None])
def test_a_layer_takes_it_by_itself(in_caps: int | None) -> None:
    assert _dispatch.choose("auto", "self_routing", torch.device("cpu"), torch.float32) == "cpu"
    assert _dispatch.choose("auto", "self_routing", torch.device("meta"), torch.float32) == "lean"
    layer = CapsLinear(in_caps, 3, in_dim=4, out_dim=5, routing=SelfRouting(), backend="cpu")
    poses = torch.randn(2, 7, 4)
    children = Capsules(poses, poses.norm(dim=-1))
    out = layer(children)
    layer.backend = "reference"
    torch.testing.assert_close(out, layer(children))


def test_shapes_are_checked() -> None:
    share, poses, weight = make_inputs((2, 5, 3, 4, 6))
    with pytest.raises(ShapeError, match=r"^share: expected \(5, 3, 2\), got \(2, 5, 3\)$"):
        weigh(share.permute(2, 0, 1), poses, weight)
    with pytest.raises(ShapeError, match="poses: expected 5 children"):
        cpu.route(torch.zeros(2, 6, 4), weight, activations=torch.zeros(2, 6), route_weight=torch.zeros(3, 4))
    with pytest.raises(ShapeError, match=r"^share: expected \(5, 3, 2\), got \(5, 4, 2\)$"):
        cpu.route(poses, weight, activations=torch.zeros(2, 5), route_weight=torch.zeros(4, 4))


# Each instruction set needs a process of its own, because it is chosen once.
@needs_kernel
@pytest.mark.parametrize("level", LEVELS)
def test_lower_instruction_sets(level: str) -> None:
    if LEVELS.index(level) >= LEVELS.index(_library.describe()):
        pytest.skip("only what is below the one that this process tests")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::test_odd_sizes"],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
