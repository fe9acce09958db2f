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
from torchcaps.ops import _native
from torchcaps.ops._attention_pass.cpu import attend
from torchcaps.testing import assert_matches_reference

LEVELS = ["portable", "avx2", "avx512"]
missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def reference(poses: Tensor, weight: Tensor, key: Tensor | None = None, prior: Tensor | None = None) -> Tensor:
    votes = ops.vote(poses, weight)
    logits = votes.new_zeros(votes.shape[:3]) if key is None else torch.einsum("bijd,bjd->bij", votes, key)
    coupling = logits.softmax(-1) if prior is None else logits.softmax(-1) + prior
    return torch.einsum("bij,bijd->bjd", coupling, votes)


def make_inputs(sizes: tuple[int, ...], *, shared: bool = False, with_key: bool = True, with_prior: bool = True):
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    poses = torch.randn(batch, children, in_dim, generator=generator)
    weight = 0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim, generator=generator)
    key = torch.randn(batch, parents, out_dim, generator=generator) if with_key else None
    prior = torch.randn(children, parents, generator=generator) if with_prior else None
    return [poses, weight, key, prior]


def check(inputs, dtype: torch.dtype = torch.float32) -> None:
    # With one parent the gradient of the key is 0, and what is compared are two small rounding errors.
    assert_matches_reference(attend, reference, inputs, dtype=dtype, factor=4)


# Batch, children, parents, child pose, parent pose: around the sizes of vectors (2 to 16) and of blocks of children.
SIZES = [
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
    check(make_inputs(sizes, shared=shared), dtype)


@needs_kernel
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("with_key", [False, True])
def test_without_prior_and_without_key(with_key: bool, shared: bool) -> None:
    check(make_inputs((6, 40, 5, 4, 12), shared=shared, with_key=with_key, with_prior=False))
    check(make_inputs((19, 3, 2, 4, 3), shared=shared, with_key=with_key, with_prior=False), torch.float64)


@needs_kernel
def test_prior_is_added_after_softmax() -> None:
    poses, weight, key, prior = make_inputs((4, 9, 3, 8, 16))
    votes = ops.vote(poses, weight)
    added = torch.einsum("ij,bijd->bjd", prior, votes)
    torch.testing.assert_close(attend(poses, weight, key, prior), attend(poses, weight, key) + added)


@needs_kernel
def test_non_contiguous_inputs() -> None:
    poses, weight, key, prior = make_inputs((6, 10, 4, 8, 5))
    strange = [tensor.mT.contiguous().mT for tensor in (poses, weight, key, prior)]
    assert not any(tensor.is_contiguous() for tensor in strange)
    check(strange)
    check([poses[:, ::2], weight[::2], key, prior[::2]])


@needs_kernel
@pytest.mark.parametrize("only", range(4))
def test_gradients_only_where_required(only: int) -> None:
    inputs = make_inputs((5, 9, 3, 8, 16))
    every = [tensor.clone().requires_grad_() for tensor in inputs]
    some = [tensor.clone().requires_grad_(number == only) for number, tensor in enumerate(inputs)]
    for leaves in (every, some):
        attend(*leaves).square().sum().backward()
    assert torch.equal(every[only].grad, some[only].grad)
    assert [leaf.grad is not None for leaf in some] == [number == only for number in range(4)]


@needs_kernel
@pytest.mark.parametrize("shape", [(0, 4, 3, 8, 5), (2, 0, 3, 8, 5)])
def test_no_children(shape: tuple[int, ...]) -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs(shape)]
    out = attend(*inputs)
    assert torch.equal(out, torch.zeros(shape[0], 3, 5))
    for grad in torch.autograd.grad(out.sum(), inputs):
        assert torch.equal(grad, torch.zeros_like(grad))


@needs_kernel
def test_nan_propagates() -> None:
    poses, weight, key, _ = make_inputs((2, 5, 3, 4, 4))
    poses[1, 2, 0] = float("nan")
    out = attend(poses, weight, key)
    assert out[1].isnan().all()
    assert out[0].isfinite().all()


@needs_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_same_bits_for_any_thread_count(shared: bool) -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs((70, 300, 4, 8, 16), shared=shared)]
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5, 2):
        torch.set_num_threads(threads)
        out = attend(*inputs)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype).requires_grad_() for tensor in make_inputs((4, 20, 3, 8, 16))]
    out = attend(*inputs)
    out.sum().backward()
    assert {out.dtype, *(tensor.grad.dtype for tensor in inputs)} == {dtype}
    assert torch.equal(out, attend(*(tensor.float() for tensor in inputs)).to(dtype))


@needs_kernel
def test_double_backward_names_reference() -> None:
    poses, weight, key, _ = (tensor.requires_grad_() for tensor in make_inputs((2, 5, 3, 4, 4)))
    (grad,) = torch.autograd.grad(attend(poses, weight, key).sum(), poses, create_graph=True)
    with raises_about(ConfigError, "backend", "'cpu'"):
        grad.sum().backward()


def test_errors_name_the_argument() -> None:
    poses, weight, key, prior = make_inputs((2, 5, 3, 4, 6))
    with raises_about(ShapeError, "poses", "(5, 4)"):
        attend(poses[0], weight)
    with raises_about(ShapeError, "key", "(3, 6)"):
        attend(poses, weight, key[0])
    with raises_about(ShapeError, "prior", "(1, 3)"):
        attend(poses, weight, key, prior[:1])
    with raises_about(ShapeError, "prior", "(5, 3)"):
        attend(poses, weight, None, prior)


# Each instruction set needs a process of its own, because it is chosen once.
@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("level", LEVELS)
def test_lower_instruction_sets(level: str) -> None:
    if LEVELS.index(level) >= LEVELS.index(_native.instruction_set()):
        pytest.skip("only what is below the one that this process tests")
    names = ("test_odd_sizes", "test_without_prior_and_without_key")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"{__file__}::{name}" for name in names)],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
