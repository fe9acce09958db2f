import ctypes
import itertools
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from kernels import dense
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.ops import _native
from torchcaps.testing import assert_matches_reference

CPU = torch.device("cpu")
LEVELS = ["portable", "avx2", "avx512"]
missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))


def route(poses: Tensor, weight: Tensor, bias: Tensor | None = None, **options) -> Tensor:
    # Views only: a parallel torch operation would hang in a forked process.
    return dense("dynamic", poses, weight, activations=poses[..., 0], bias=bias, **options).poses


def reference(poses: Tensor, weight: Tensor, bias: Tensor | None = None, **options) -> Tensor:
    return ops.dynamic_routing(ops.vote(poses, weight), bias=bias, **options).poses


def make_inputs(sizes: tuple[int, ...], *, shared: bool = False, bias: bool = True, scale: float = 1.0):
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    poses = scale * torch.randn(batch, children, in_dim, generator=generator)
    weight = 0.3 * torch.randn(*(() if shared else (children,)), parents, in_dim, out_dim, generator=generator)
    vector = 0.1 * torch.randn(parents, out_dim, generator=generator) if bias else None
    return [poses, weight, vector]


def check(inputs, dtype: torch.dtype = torch.float32, **options) -> None:
    assert_matches_reference(
        lambda *tensors: route(*tensors, **options),
        lambda *tensors: reference(*tensors, **options),
        inputs,
        dtype=dtype,
    )


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
def test_odd_sizes(sizes, shared: bool, dtype: torch.dtype) -> None:
    check(make_inputs(sizes, shared=shared), dtype)


@needs_kernel
@pytest.mark.parametrize(
    ("iters", "leaky", "grad", "bias"),
    list(itertools.product([1, 2, 3, 5], [False, True], ["all", "last"], [False, True])),
)
def test_options(iters: int, leaky: bool, grad: str, bias: bool) -> None:
    check(make_inputs((6, 40, 5, 4, 12), bias=bias), iters=iters, leaky=leaky, grad=grad)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("squash", ["standard", "half", "exponential"])
def test_squash_forms(squash: str, dtype: torch.dtype) -> None:
    check(make_inputs((6, 40, 5, 4, 12)), dtype, squash=squash)
    check(make_inputs((3, 7, 1, 4, 1), shared=True), dtype, squash=squash, leaky=True, iters=2)
    # Zero and short vectors, where the factor of the exponential form is a limit.
    for scale in (0.0, 1e-20, 1e-3):
        check(make_inputs((4, 20, 3, 8, 16), scale=scale, bias=False), dtype, squash=squash)


@needs_kernel
def test_kernel_computes_every_squash_form() -> None:
    poses, weight, bias = make_inputs((5, 9, 3, 8, 16))
    results = [route(poses, weight, bias, squash=form) for form in ("standard", "half", "exponential")]
    for first, second in itertools.combinations(results, 2):
        assert not torch.allclose(first, second, rtol=1e-2)


@needs_kernel
def test_digitcaps_error_is_at_most_twice_eager() -> None:
    check(make_inputs((32, 1152, 10, 8, 16), scale=0.3))


@needs_kernel
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e3])
def test_zero_tiny_and_huge_votes(scale: float) -> None:
    check(make_inputs((4, 20, 3, 8, 16), scale=scale))
    check(make_inputs((4, 20, 3, 8, 16), scale=scale, bias=False), leaky=True)


@needs_kernel
def test_nan_propagates() -> None:
    poses, weight, _ = make_inputs((2, 5, 3, 4, 4))
    poses[1, 2, 0] = float("nan")
    out = route(poses, weight)
    assert out[1].isnan().all()
    assert out[0].isfinite().all()


@needs_kernel
def test_non_contiguous_inputs() -> None:
    poses, weight, bias = make_inputs((6, 10, 4, 8, 5))
    assert poses is not None
    assert weight is not None
    assert bias is not None
    check([poses.transpose(0, 1).contiguous().transpose(0, 1), weight.mT.contiguous().mT, bias.T.contiguous().T])
    check([poses[:, ::2], weight[::2], bias])
    expanded = poses[:1].expand(6, -1, -1)
    assert torch.equal(route(expanded, weight), route(expanded.contiguous(), weight))


@needs_kernel
@pytest.mark.parametrize(
    "needed", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]
)
def test_gradients_only_where_required(needed: tuple[bool, ...]) -> None:
    inputs = make_inputs((5, 9, 3, 8, 16))
    every = [tensor.clone().requires_grad_() for tensor in inputs]
    some = [tensor.clone().requires_grad_(need) for tensor, need in zip(inputs, needed, strict=True)]
    for leaves in (every, some):
        route(*leaves).square().sum().backward()
    for whole, part, need in zip(every, some, needed, strict=True):
        assert torch.equal(whole.grad, part.grad) if need else part.grad is None


@needs_kernel
def test_no_grad_and_inference_mode() -> None:
    inputs = make_inputs((5, 9, 3, 8, 16))
    expected = route(*inputs)
    with torch.no_grad():
        assert torch.equal(route(*inputs), expected)
    with torch.inference_mode():
        assert torch.equal(route(*inputs), expected)


@needs_kernel
@pytest.mark.parametrize("shape", [(0, 4, 3, 8, 5), (2, 0, 3, 8, 5)])
def test_empty_inputs(shape: tuple[int, ...]) -> None:
    poses, weight, bias = make_inputs(shape)
    poses = poses.requires_grad_()
    out = route(poses, weight, bias)
    out.sum().backward()
    assert out.shape == (shape[0], 3, 5)
    assert torch.equal(out, reference(poses, weight, bias))


@needs_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_same_bits_for_any_thread_count(shared: bool) -> None:
    inputs = [tensor.requires_grad_() for tensor in make_inputs((70, 300, 4, 8, 16), shared=shared)]
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5, 2):
        torch.set_num_threads(threads)
        out = route(*inputs)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
def test_samples_are_independent() -> None:
    poses, weight, bias = make_inputs((19, 30, 3, 8, 16))
    whole = route(poses, weight, bias)
    torch.testing.assert_close(route(poses[18:], weight, bias), whole[18:], rtol=1e-6, atol=1e-7)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype: torch.dtype) -> None:
    poses, weight, bias = (tensor.to(dtype).requires_grad_() for tensor in make_inputs((4, 20, 3, 8, 16)))
    out = route(poses, weight, bias)
    out.sum().backward()
    assert out.dtype == poses.grad.dtype == weight.grad.dtype == bias.grad.dtype == dtype
    assert torch.equal(out, route(poses.float(), weight.float(), bias.float()).to(dtype))


@needs_kernel
def test_autocast_routes_in_float32() -> None:
    layer = tc.nn.CapsLinear(20, 3, 8, 16, bias=True, backend="cpu")
    poses = torch.randn(4, 20, 8)
    children = tc.Capsules(poses.bfloat16(), poses.norm(dim=-1))
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(children).poses
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, layer(tc.Capsules(poses.bfloat16().float(), poses.norm(dim=-1))).poses)


@needs_kernel
def test_compiled_layer_is_one_graph() -> None:
    layer = tc.nn.CapsLinear(20, 3, 8, 16, bias=True, backend="auto")
    poses = torch.randn(4, 20, 8, requires_grad=True)
    expected = layer(tc.Capsules(poses, poses.norm(dim=-1))).poses
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    got = compiled(tc.Capsules(poses, poses.norm(dim=-1))).poses
    assert torch.equal(got, expected)
    grads = [torch.autograd.grad(out.sum(), [poses, layer.weight]) for out in (got, expected)]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


class PosesOnly(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, poses: Tensor) -> Tensor:
        return self.layer(tc.Capsules(poses, poses.norm(dim=-1))).poses


@needs_kernel
def test_exported_layer_takes_any_batch() -> None:
    model = PosesOnly(tc.nn.CapsLinear(20, 3, 8, 16, bias=True)).eval()
    program = torch.export.export(
        model, (torch.randn(4, 20, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},), strict=False
    )
    assert "torchcaps." not in str(program.graph)
    poses = torch.randn(7, 20, 8)
    torch.testing.assert_close(program.module()(poses), model(poses))


@needs_kernel
def test_double_backward_names_reference() -> None:
    poses, weight, _ = (tensor.requires_grad_() for tensor in make_inputs((2, 5, 3, 4, 4)))
    (grad,) = torch.autograd.grad(route(poses, weight).sum(), poses, create_graph=True)
    with raises_about(ConfigError, "backend", "'cpu'"):
        grad.sum().backward()


def test_bias_of_another_shape() -> None:
    with raises_about(ShapeError, "bias", "(4, 3)"):
        route(torch.ones(2, 5, 4), torch.ones(5, 3, 4, 4), torch.ones(4, 3))


@needs_kernel
def test_instruction_set_from_environment() -> None:
    assert _native.instruction_set() in LEVELS
    assert _native.instruction_set() == os.environ.get("TORCHCAPS_CPU", _native.instruction_set())


# Each instruction set needs a process of its own, because it is chosen once.
@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("level", LEVELS)
def test_lower_instruction_sets(level: str) -> None:
    if LEVELS.index(level) >= LEVELS.index(_native.instruction_set()):
        pytest.skip("only what is below the one that this process tests")
    names = ("test_instruction_set_from_environment", "test_odd_sizes", "test_options", "test_squash_forms")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"{__file__}::{name}" for name in names)],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@needs_kernel
def test_forked_process_computes_the_same() -> None:
    inputs = make_inputs((64, 300, 4, 8, 16))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    expected = route(*inputs)
    with warnings.catch_warnings():
        # Python warns of forking a process with threads; that is the case to be tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None)
        libc.alarm(30)
        os._exit(0 if torch.equal(route(*inputs), expected) else 1)
    _, status = os.waitpid(child, 0)
    torch.set_num_threads(before)
    assert os.WIFEXITED(status)
    assert os.WEXITSTATUS(status) == 0


class Routed(torch.utils.data.Dataset):
    """Routes with two threads in the worker process that reads it."""

    def __init__(self) -> None:
        self.inputs = make_inputs((32, 100, 4, 8, 16))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        torch.set_num_threads(2)
        return route(*self.inputs)


@needs_kernel
def test_data_loader_workers_compute_the_same() -> None:
    data = Routed()
    expected = route(*data.inputs)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, timeout=60)
    assert all(torch.equal(result, expected) for result in loader)


@needs_kernel
@pytest.mark.parametrize("out_dim", [1, 7, 16, 21])
def test_size_of_the_batch_changes_no_bit_of_a_sample(out_dim: int) -> None:
    # With few samples the entries of a vote are in the vector lanes, otherwise the samples are.
    torch.manual_seed(0)
    poses, weight = torch.randn(16, 70, 5), torch.randn(70, 3, 5, out_dim)
    for dtype in (torch.float32, torch.float64):
        for leaky in (False, True):
            whole = dense("dynamic", poses.to(dtype), weight.to(dtype), leaky=leaky)
            for first, last in ((3, 4), (5, 7), (0, 3), (0, 9)):
                part = dense("dynamic", poses[first:last].to(dtype), weight.to(dtype), leaky=leaky)
                assert torch.equal(part.poses, whole.poses[first:last])
