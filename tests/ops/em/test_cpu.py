"""The C++ kernel of EM routing, compared with the reference."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsConv2d, ClassCaps
from torchcaps.ops import Window, _native
from torchcaps.ops.em import cpu
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
needs_kernel = pytest.mark.skipif(missing is not None, reason=str(missing))

# Grid, kernel, stride, child types, parent types, batch: around the sizes of vectors (2 to 16); some places are unseen.
SIZES = [
    ((1, 1), (1, 1), 1, 1, 1, 1),
    ((5, 6), (3, 3), 2, 2, 3, 2),
    ((5, 5), (3, 3), 1, 3, 18, 3),
    ((6, 5), (3, 2), 2, 1, 16, 2),
    ((4, 3), (1, 1), 2, 2, 33, 1),
    ((7, 5), (2, 3), 3, 2, 3, 2),
    ((6, 9), (3, 1), 2, 2, 7, 2),
    ((3, 4), (3, 4), 1, 3, 5, 17),
]


def make_inputs(sizes, *, shared: bool = False, scale: float = 1.0) -> list[Tensor]:
    grid, kernel, _, types, parents, batch = sizes
    generator = torch.Generator().manual_seed(sum(grid) + parents)
    children = types if shared else kernel[0] * kernel[1] * types
    return [
        scale * torch.randn(batch, *grid, types, 16, generator=generator),
        torch.rand(batch, *grid, types, generator=generator),
        0.5 * torch.randn(children, parents, 4, 4, generator=generator),
        0.3 * torch.randn(parents, generator=generator),
        0.3 * torch.randn(parents, generator=generator),
    ]


def both(window: Window, iters: int):
    """The kernel and the reference as functions from tensors to all of the result in one tensor."""
    inverse_temp = [0.2 * (iteration + 1) for iteration in range(iters)]

    def kernel(poses, activations, weight, beta_u, beta_a):
        children = Capsules(poses, activations)
        out = cpu.conv(children, weight, window, beta_u=beta_u, beta_a=beta_a, iters=iters, inverse_temp=inverse_temp)
        return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)

    def reference(poses, activations, weight, beta_u, beta_a):
        seen = window.gather(Capsules(poses, activations))
        votes = window.votes(seen.poses, weight)
        options: dict[str, Any] = {"iters": iters, "inverse_temp": inverse_temp, "softmax": window.softmax}
        routed = ops.em_routing(votes, seen.activations, beta_u=beta_u, beta_a=beta_a, **options)
        out = window.unflatten_grid(routed.capsules)
        return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)

    return kernel, reference


# Each iteration amplifies rounding errors, and another summation order rounds differently: 2 is too small.
FACTOR = 8.0


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("competition", ["global", "local", "positions"])
@pytest.mark.parametrize("sizes", SIZES)
def test_odd_sizes(sizes, competition, dtype):
    grid, kernel, stride, *_ = sizes
    window = Window(grid, kernel, stride, competition)
    assert_matches_reference(*both(window, 3), make_inputs(sizes), dtype=dtype, factor=FACTOR)


@needs_kernel
@pytest.mark.parametrize("iters", [1, 2, 3, 5])
@pytest.mark.parametrize("shared", [False, True])
def test_iterations_shared_weights_and_coordinates(iters, shared):
    sizes = ((3, 4), (3, 4), 1, 3, 5, 4)
    offsets = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
    window = Window(*sizes[:3], offsets=offsets)
    assert_matches_reference(*both(window, iters), make_inputs(sizes, shared=shared), factor=FACTOR)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 3, 10])
@pytest.mark.parametrize("case", ["zero", "equal", "huge", "tiny", "silent", "one far away"])
def test_values_and_gradients_are_finite(case, iters, dtype):
    sizes = SIZES[1]
    inputs = make_inputs(sizes, scale={"zero": 0.0, "huge": 1e12, "tiny": 1e-12}.get(case, 1.0))
    if case == "equal":
        inputs[0] = inputs[0][:, :1, :1, :1].expand_as(inputs[0])
        inputs[2] = inputs[2][:1, :1].expand_as(inputs[2])
    if case == "silent":
        inputs[1] = torch.zeros_like(inputs[1])
    if case == "one far away":
        inputs[0][:, 0, 0] *= 1e12
        inputs[1][:, 0, 0] = 0
    leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs]
    out = both(Window(*sizes[:3]), iters)[0](*leaves)
    grads = torch.autograd.grad(out, leaves, torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out))
    assert all(bool(tensor.isfinite().all()) for tensor in (out, *grads))


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inactive_child_far_from_all_parents(dtype):
    # Its logits are below any fixed value that could fill a vector lane without a parent.
    inputs = [tensor.to(dtype) for tensor in make_inputs(SIZES[1])]
    inputs[1][:, 0, 0] = 0
    kernel = both(Window(*SIZES[1][:3]), 3)[0]
    near = kernel(*inputs)
    inputs[0][:, 0, 0] *= 1e17
    torch.testing.assert_close(kernel(*inputs), near)


@needs_kernel
def test_float64_range():
    inputs = [tensor.double() for tensor in make_inputs(SIZES[1])]
    inputs[0] *= 1e60
    results = []
    for route in both(Window(*SIZES[1][:3]), 3):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = route(*leaves)
        results.append([out, *torch.autograd.grad(out.sum(), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9 * float(other.detach().abs().max()))


@needs_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_empty_batch(shared):
    inputs = make_inputs(SIZES[-1], shared=shared)
    leaves = [inputs[0][:0], inputs[1][:0], *inputs[2:]]
    leaves = [tensor.requires_grad_() for tensor in leaves]
    for route in both(Window(*SIZES[-1][:3]), 3):
        out = route(*leaves)
        assert out.shape == (0, 1, 1, 5, 17)
        for grad in torch.autograd.grad(out.sum(), leaves[2:]):
            assert bool((grad == 0).all())


@needs_kernel
def test_gradients_of_inactive_child():
    inputs = make_inputs(SIZES[1])
    inputs[1][:, ::2] = 0
    assert_matches_reference(*both(Window(*SIZES[1][:3]), 3), inputs, dtype=torch.float64, factor=FACTOR)


@needs_kernel
def test_same_bits_for_any_thread_count():
    kernel = both(Window((5, 5), (3, 3)), 3)[0]
    inputs = make_inputs(((5, 5), (3, 3), 1, 3, 18, 37))
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            leaves = [tensor.clone().requires_grad_() for tensor in inputs]
            out = kernel(*leaves)
            results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(first, second) for first, second in zip(results[0], other, strict=True))


@needs_kernel
def test_non_contiguous_and_half_precision_inputs():
    sizes = SIZES[1]
    inputs = make_inputs(sizes)
    turned = [inputs[0].transpose(1, 2).contiguous().transpose(1, 2), *inputs[1:]]
    kernel = both(Window(*sizes[:3]), 3)[0]
    assert torch.equal(kernel(*turned), kernel(*inputs))
    half = kernel(*(tensor.to(torch.bfloat16) for tensor in inputs))
    assert half.dtype == torch.bfloat16


@needs_kernel
def test_layers_match_reference():
    torch.manual_seed(0)
    children = Capsules(torch.randn(2, 6, 6, 4, 16), torch.rand(2, 6, 6, 4))
    for make in (
        lambda backend: CapsConv2d(4, 6, 3, 2, backend=backend),
        lambda backend: ClassCaps(4, 5, centres=(range(6), range(6)), backend=backend),
    ):
        fast, slow = make("cpu"), make("reference")
        slow.load_state_dict(fast.state_dict())
        for one, other in zip(fast(children), slow(children), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@needs_kernel
@pytest.mark.parametrize("level", ["portable", "avx2"])
def test_lower_instruction_sets_agree(level):
    code = f"""
import runpy
import torch
tests = runpy.run_path({__file__!r})
for sizes in tests["SIZES"][1:4]:
    kernel, reference = tests["both"](tests["Window"](*sizes[:3]), 3)
    tests["assert_matches_reference"](kernel, reference, tests["make_inputs"](sizes), factor=tests["FACTOR"])
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@needs_kernel
def test_errors_name_the_argument():
    poses, activations, weight, beta_u, beta_a = make_inputs(SIZES[1])
    window = Window(*SIZES[1][:3])
    options: dict[str, Any] = {"beta_u": beta_u, "beta_a": beta_a, "iters": 1, "inverse_temp": [1.0]}
    with raises_about(ShapeError, "weight", "(17, 3, 4, 4)"):
        cpu.conv(Capsules(poses, activations), weight[1:], window, **options)
    out = cpu.conv(Capsules(poses.requires_grad_(), activations), weight, window, **options)
    (grad,) = torch.autograd.grad(out.poses.sum(), poses, create_graph=True)
    with raises_about(ConfigError, "'cpu'"):
        grad.sum().backward()


def test_missing_library_is_the_reason(monkeypatch):
    monkeypatch.setattr(_native, "_library", None)
    poses, activations, weight, beta_u, beta_a = make_inputs(SIZES[1])
    with raises_about(ConfigError, "backend", "'cpu'"):
        cpu.conv(
            Capsules(poses, activations),
            weight,
            Window(*SIZES[1][:3]),
            beta_u=beta_u,
            beta_a=beta_a,
            iters=1,
            inverse_temp=[1.0],
        )
