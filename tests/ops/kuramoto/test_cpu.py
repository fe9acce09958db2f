"""The C++ kernel of Kuramoto routing, compared with the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsConv2d, CapsLinear
from torchcaps.ops import Window, _native
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))

# Batch, children, parents, child pose, parent pose: around the sizes of vectors (2 to 16) and of blocks of children.
DENSE = [
    (19, 1, 1, 1, 1),
    (1, 12, 3, 2, 3),
    (2, 1, 4, 3, 5),
    (3, 7, 1, 4, 4),
    (17, 33, 3, 5, 7),
    (35, 70, 10, 8, 16),
    (2, 150, 5, 3, 33),
]
# Grid, kernel, stride, child types, parent types, batch; some places are unseen.
GRIDS = [
    ((1, 1), (1, 1), 1, 1, 1, 21),
    ((5, 6), (3, 3), 2, 2, 3, 2),
    ((6, 5), (3, 2), 1, 1, 5, 3),
    ((7, 5), (2, 3), 3, 2, 3, 17),
    ((3, 4), (3, 4), 1, 3, 5, 4),
]
# Kind of pose, child pose, parent pose.
POSES: list[tuple[Any, int, int]] = [("vector", 5, 7), ("vector", 8, 16), ("matrix", 4, 4), ("matrix", 9, 9)]


def learned(parents: int, size: int, generator: torch.Generator) -> list[Tensor]:
    return [0.3 * torch.randn(parents, *shape, generator=generator) for shape in ((size,), (size, size))]


def dense_inputs(sizes: tuple[int, ...], *, shared: bool = False, scale: float = 1.0) -> list[Tensor]:
    """Return poses, activations, weight, bias and omega."""
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    matrices = () if shared else (children,)
    return [
        scale * torch.randn(batch, children, in_dim, generator=generator),
        torch.rand(batch, children, generator=generator),
        0.5 * torch.randn(*matrices, parents, in_dim, out_dim, generator=generator),
        *learned(parents, out_dim, generator),
    ]


def grid_inputs(sizes: Any, poses: Any, *, shared: bool = False) -> list[Tensor]:
    grid, kernel, _, types, parents, batch = sizes
    kind, in_dim, out_dim = poses
    generator = torch.Generator().manual_seed(sum(grid) + parents + in_dim)
    side = round(in_dim**0.5)
    matrix = (side, side) if kind == "matrix" else (in_dim, out_dim)
    children = types * (1 if shared else kernel[0] * kernel[1])
    return [
        torch.randn(batch, *grid, types, in_dim, generator=generator),
        torch.rand(batch, *grid, types, generator=generator),
        0.5 * torch.randn(children, parents, *matrix, generator=generator),
        *learned(parents, out_dim, generator),
    ]


def route(backend: str, window: Window | None = None, **options: Any) -> Callable[..., Tensor]:
    """Return an implementation as a function from tensors to poses and activations in one tensor."""

    def run(poses: Tensor, activations: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
        given = {**options, **dict(zip(("bias", "omega"), rest, strict=False)), "backend": backend}
        children = Capsules(poses, activations)
        if window is None:
            out = joined(ops.route(children, weight, "kuramoto", **given))
        else:
            out = joined(ops.route_conv(children, weight, window, "kuramoto", **given))
        # Without offsets activations have no gradient, and with one iteration the frequencies have none.
        return out + 0 * activations.sum() + 0 * sum(tensor.sum() for tensor in rest)

    return run


def compare(inputs: list[Tensor], window: Window | None = None, dtype=torch.float32, **options: Any) -> None:
    kernel, reference = (route(backend, window, **options) for backend in ("cpu", "reference"))
    assert_matches_reference(kernel, reference, inputs, dtype=dtype, factor=8, draws=3)


def results(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", DENSE, ids=str)
def test_dense_layers(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(dense_inputs(sizes), dtype=dtype)


@pytest.mark.parametrize("sizes", GRIDS, ids=str)
def test_grids(sizes: Any) -> None:
    compare(grid_inputs(sizes, POSES[0]), Window(*sizes[:3], pose="vector"))


@pytest.mark.parametrize("poses", POSES, ids=str)
@pytest.mark.parametrize("competition", ["global", "local", "positions"])
def test_every_competition_and_pose(competition: Any, poses: Any) -> None:
    offsets = 0.3 * torch.randn(9, 2, generator=torch.Generator().manual_seed(5))
    compare(grid_inputs(GRIDS[1], poses), Window(*GRIDS[1][:3], competition, poses[0], offsets))


def test_shared_weights() -> None:
    compare(dense_inputs(DENSE[4], shared=True))
    compare(grid_inputs(GRIDS[4], POSES[2], shared=True), Window(*GRIDS[4][:3]), torch.float64)


@pytest.mark.parametrize(
    "options",
    [
        {"iters": 1},
        {"iters": 2, "gain": 0.0},
        {"iters": 5, "gain": 1.0, "step": 0.3},
        {"gain": 10.0},
        {"step": 0.0},
        {"step": 4.0},
        {"squash": "half"},
        {"squash": "exponential"},
    ],
    ids=str,
)
def test_options(options: dict[str, Any]) -> None:
    for inputs in (dense_inputs(DENSE[4]), dense_inputs(DENSE[4])[:3]):
        compare(inputs, **options)


def test_zero_votes_of_some_pairs() -> None:
    inputs = dense_inputs(DENSE[4])
    inputs[0][2, 5] = 0
    inputs[2][7, 1] = 0
    compare(inputs, iters=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e6])
def test_values_and_gradients_are_finite(scale: float, dtype: torch.dtype) -> None:
    inputs = [tensor.to(dtype) for tensor in dense_inputs(DENSE[4], scale=scale)]
    for given in (inputs, inputs[:3]):
        assert all(bool(tensor.isfinite().all()) for tensor in results(route("cpu"), given))


def test_threads_change_no_bit() -> None:
    grid = ((8, 9), (3, 3), 1, 2, 5, 37)
    cases = [
        (route("cpu"), dense_inputs((37, 300, 5, 8, 16))[:3]),
        (route("cpu", Window(*grid[:3], pose="vector")), grid_inputs(grid, POSES[1])[:3]),
    ]
    before = torch.get_num_threads()
    for function, inputs in cases:
        found = []
        try:
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                found.append(results(function, inputs))
        finally:
            torch.set_num_threads(before)
        for other in found[1:]:
            assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_size_of_the_batch_changes_no_bit_of_a_sample() -> None:
    poses, activations, weight, *_ = dense_inputs((37, 130, 3, 8, 16))
    one = route("cpu")(poses[20:21], activations[20:21], weight)
    assert torch.equal(route("cpu")(poses, activations, weight)[20:21], one)


def test_empty_batch_has_an_empty_result_and_no_gradient() -> None:
    poses, activations, *rest = dense_inputs(DENSE[4])
    leaves = [tensor.requires_grad_() for tensor in rest]
    out = route("cpu")(poses[:0], activations[:0], *leaves)
    assert out.shape == (0, 3, 8)
    assert all(bool((grad == 0).all()) for grad in torch.autograd.grad(out.sum(), leaves))


def test_sixteen_bits_are_computed_in_float32() -> None:
    half = [tensor.bfloat16() for tensor in dense_inputs(DENSE[5])]
    expected = route("cpu")(*(tensor.float() for tensor in half))
    assert torch.equal(route("cpu")(*half), expected.bfloat16())
    assert all(grad.dtype == torch.bfloat16 for grad in results(route("cpu"), half))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["portable", "avx2"])
def test_lower_instruction_sets_agree(level: str) -> None:
    code = f"""
import runpy
tests = runpy.run_path({__file__!r})
for sizes in tests["DENSE"][4:6]:
    tests["compare"](tests["dense_inputs"](sizes))
for poses in tests["POSES"]:
    tests["compare"](tests["grid_inputs"](tests["GRIDS"][1], poses),
        tests["Window"](*tests["GRIDS"][1][:3], pose=poses[0]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_layers_take_it_and_agree_with_the_reference() -> None:
    torch.manual_seed(0)
    flat = Capsules(torch.randn(3, 20, 8), torch.rand(3, 20))
    grid = Capsules(torch.randn(2, 6, 6, 4, 9), torch.rand(2, 6, 6, 4))
    makers: list[tuple[Callable[[str], torch.nn.Module], Capsules]] = [
        (lambda backend: CapsLinear(20, 5, 8, 12, routing="kuramoto", backend=backend), flat),
        (lambda backend: CapsLinear(None, 5, 8, 12, routing="kuramoto", bias=True, backend=backend), flat),
        (lambda backend: CapsConv2d(4, 6, 3, 2, dims=(9, 9), routing="kuramoto", backend=backend), grid),
        (lambda backend: CapsConv2d(4, 6, dims=(9, 5), pose="vector", routing="kuramoto", backend=backend), grid),
    ]
    for make, children in makers:
        fast, auto, slow = make("cpu"), make("auto"), make("reference")
        for layer in (slow, auto):
            layer.load_state_dict(fast.state_dict())
        found, expected = fast(children), slow(children)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert all(torch.equal(one, other) for one, other in zip(auto(children), found, strict=True))


def test_what_is_left_to_the_reference_says_why() -> None:
    children = Capsules(torch.randn(1, 5, 8), torch.rand(1, 5))
    weight = torch.randn(5, 3, 8, 4)
    with raises_about(ConfigError, "backend", "'cpu'", "steps of at most"):
        ops.route(children, weight, "kuramoto", backend="cpu", step=100.0)
    with raises_about(ConfigError, "backend", "'cpu'", "softmax"):
        ops.route(children, weight, "kuramoto", backend="cpu", softmax=ops.parent_softmax)


def test_errors_name_the_argument() -> None:
    poses, activations, weight, bias, omega = dense_inputs(DENSE[4])
    children = Capsules(poses, activations)
    with raises_about(ShapeError, "bias", (3, 6)):
        ops.route(children, weight, "kuramoto", backend="cpu", bias=bias[:, 1:])
    with raises_about(ShapeError, "omega", (3, 7, 6)):
        ops.route(children, weight, "kuramoto", backend="cpu", omega=omega[..., 1:])
    with raises_about(ConfigError, "iters", 0):
        ops.route(children, weight, "kuramoto", backend="cpu", iters=0)
    call = torch.ops.torchcaps.kuramoto_pass
    grid, window = (poses[:, :, None, None], activations[:, :, None, None], weight), [33, 1, 1, 0, 0, 0]
    for turns, keys in ((0, torch.zeros(17, 1, 1, 3, 0)), (1, None), (-1, None)):
        with raises_about(ConfigError, "turns"):
            call(*grid, keys, None, window, turns, [4.0, 1.0])
    with raises_about(ConfigError, "constants"):
        call(*grid, None, None, window, 0, [4.0])
