"""Run by test_triton.py in a process of its own, with TRITON_INTERPRET=1."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch

from kernels import dense
from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsLinear, DynamicRouting
from torchcaps.ops import dynamic_routing, vote
from torchcaps.ops.dynamic import triton
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

from .interpreting import few_programs  # noqa: F401

# B, I, J, P, D: odd sizes, one of each, more samples than a tile, more children than programs would take at once.
SHAPES = [(3, 5, 3, 3, 5), (1, 1, 1, 1, 1), (1, 4, 1, 2, 8), (2, 1, 7, 4, 3), (20, 3, 10, 8, 16), (2, 40, 2, 5, 2)]


def make(shape, shared, *, dtype=torch.float32, bias=True, seed=0):
    batch, children, parents, size, dim = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = [(batch, children, size), (parents, size, dim) if shared else (children, parents, size, dim)]
    sizes += [(parents, dim)] * bias
    inputs = [torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]
    return inputs, torch.randn(batch, parents, dim, generator=generator, dtype=torch.float64).to(dtype)


def route(poses, weight, bias=None, **options):
    return dense("dynamic", poses, weight, backend="triton", bias=bias, **options).poses


def reference(poses, weight, bias=None, **options):
    return dynamic_routing(vote(poses, weight), bias=bias, **options).poses


def with_grads(routing, inputs, upstream, **options):
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    out = routing(*inputs, **options)
    return [out, *torch.autograd.grad(out, inputs, upstream)]


def check(shape, shared, **options):
    inputs, _ = make(shape, shared)
    assert_matches_reference(partial(route, **options), partial(reference, **options), inputs)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("leaky", "grad"), [(False, "all"), (True, "last")])
def test_forward_and_gradients(shared, leaky, grad):
    check(SHAPES[0], shared, leaky=leaky, grad=grad, iters=3)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("shared", [False, True])
def test_all_shapes_and_options(shape, shared):
    for leaky, grad, iters in itertools.product([False, True], ["all", "last"], [1, 2, 3]):
        check(shape, shared, leaky=leaky, grad=grad, iters=iters)


def test_without_bias_in_double():
    inputs, _ = make((2, 3, 2, 2, 4), False, dtype=torch.float64, bias=False)
    assert_matches_reference(route, reference, inputs, dtype=torch.float64)


# The kernel sums in float32, so that only the results are rounded. The eager reference is computed in float32 too: some
# processors have no instructions for these types.
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_only_the_result(dtype):
    inputs, grad = make((2, 4, 3, 2, 4), False, dtype=dtype)
    exact = with_grads(reference, [tensor.double() for tensor in inputs], grad.double())
    for true, got in zip(exact, with_grads(route, inputs, grad), strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), true, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_mixed_types_promote():
    (poses, weight, bias), grad = make((2, 3, 2, 2, 4), False)
    out, grad_poses, grad_weight, _ = with_grads(route, [poses.half(), weight, bias], grad)
    assert out.dtype == grad_weight.dtype == torch.float32
    assert grad_poses.dtype == torch.float16
    torch.testing.assert_close(out, reference(poses.half().float(), weight, bias).requires_grad_())


def test_non_contiguous_inputs():
    (poses, weight, bias), grad = make((2, 3, 2, 4, 4), False)
    turned = [poses.mT.contiguous().mT, weight.mT.contiguous().mT, bias.mT.contiguous().mT]
    assert not turned[1].is_contiguous()
    plain = with_grads(route, [poses, weight, bias], grad)
    for ours, theirs in zip(plain, with_grads(route, turned, grad.mT.contiguous().mT), strict=True):
        assert torch.equal(ours, theirs)


def test_zero_votes_have_finite_gradients():
    (poses, weight, _), grad = make((2, 3, 2, 2, 4), False)
    out, *grads = with_grads(route, [poses, torch.zeros_like(weight)], grad)
    assert torch.equal(out, torch.zeros_like(out))
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_empty_batch():
    assert route(torch.zeros(0, 3, 2), torch.zeros(3, 4, 2, 5)).shape == (0, 4, 5)


@pytest.mark.slow
def test_opcheck():
    (poses, weight, bias), _ = make((2, 3, 2, 2, 4), False)
    inputs = [tensor.requires_grad_() for tensor in (poses, weight, bias)]
    torch.library.opcheck(triton._route, (*inputs, 2, True, True))


def test_layer_with_named_backend():
    layer = CapsLinear(5, 3, in_dim=4, out_dim=6, routing=DynamicRouting(iters=2), bias=True, backend="triton")
    children = Capsules(torch.randn(2, 5, 4), torch.ones(2, 5))
    expected = layer.routing.route(children, layer.weight, bias=layer.bias, backend="reference")
    torch.testing.assert_close(layer(children).poses, expected.poses)


def test_errors_name_the_argument():
    poses, weight = torch.zeros(2, 3, 4), torch.zeros(3, 5, 4, 6)
    with raises_about(ShapeError, "bias", "(6, 5)"):
        route(poses, weight, torch.zeros(6, 5))
    with raises_about(ShapeError, "poses", "pose size 4"):
        route(poses[..., :3], weight)
    with raises_about(ConfigError, "iters", "a count from 1 to"):
        route(poses, weight, iters=0)


def test_double_backward_is_refused():
    (poses, weight, _), _ = make((2, 3, 2, 2, 4), False)
    poses.requires_grad_()
    (grad,) = torch.autograd.grad(route(poses, weight).sum(), poses, create_graph=True)
    with raises_about(ConfigError, "backend", "'triton'"):
        grad.sum().backward()
