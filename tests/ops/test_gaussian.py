"""The C++ kernel of EM and variational Bayes routing for poses of any size, compared with the references."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import joined
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import CapsConv2d, CapsLinear, EMRouting, VariationalRouting
from torchcaps.ops import Prior, Window, _native
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))

# The error of kernel and reference is about the same. Each is a single draw where a gradient has few entries, such as
# those of the betas, and each iteration enlarges a rounding.
FACTOR = 16.0
# Of the gradient of five betas, the error of eager PyTorch is 8e-8 to 4e-6 when the inputs change by one rounding.
DRAWS = 4
ALGORITHMS = ("em", "variational")
OPTIONS: dict[str, dict[str, Any]] = {"em": {"inverse_temp": [0.2, 0.4, 0.6]}, "variational": {}}
# Batch, children, parents, child pose, parent pose: around the sizes of vectors (2 to 16) and of blocks of children.
DENSE = [
    (19, 1, 1, 1, 1),
    (1, 12, 3, 2, 3),
    (2, 1, 4, 3, 5),
    (3, 7, 1, 4, 4),
    (5, 9, 3, 8, 16),
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
POSES: list[tuple[Any, int, int]] = [
    ("vector", 5, 7),
    ("vector", 8, 16),
    ("matrix", 1, 1),
    ("matrix", 4, 4),
    ("matrix", 9, 9),
    ("matrix", 25, 25),
]


class ExactDigamma(torch.autograd.Function):
    """torch's own derivative of digamma is exact to about nine digits only, also in float64."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        return torch.digamma(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        (x,) = ctx.saved_tensors
        y = x.double()
        total = sum(1 / (y + k).square() for k in range(20))
        y = y + 20
        f = 1 / y.square()
        series = 1 / 6 - f * (1 / 30 - f * (1 / 42 - f * (1 / 30 - f * 5 / 66)))
        return grad * (total + 1 / y + f / 2 + f / y * series).to(x.dtype)


@pytest.fixture
def exact_digamma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "digamma", lambda self: ExactDigamma.apply(self))


def learned(parents: int, generator: torch.Generator) -> list[Tensor]:
    return [0.3 * torch.randn(parents, generator=generator) for _ in range(2)]


def dense_inputs(sizes: tuple[int, ...], *, shared: bool = False, scale: float = 1.0) -> list[Tensor]:
    batch, children, parents, in_dim, out_dim = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    matrices = () if shared else (children,)
    return [
        scale * torch.randn(batch, children, in_dim, generator=generator),
        torch.rand(batch, children, generator=generator),
        0.5 * torch.randn(*matrices, parents, in_dim, out_dim, generator=generator),
        *learned(parents, generator),
    ]


def grid_inputs(sizes, poses, *, shared: bool = False) -> list[Tensor]:
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
        *learned(parents, generator),
    ]


def route(algorithm: str, backend: str, window: Window | None = None, **options: Any):
    """An implementation as a function from tensors to poses and activations in one tensor."""

    def run(poses: Tensor, activations: Tensor, weight: Tensor, beta_u: Tensor, beta_a: Tensor, *background: Tensor):
        given = {**options, "beta_u": beta_u, "beta_a": beta_a, "backend": backend}
        if background:
            given["background"] = background[0]
        children = Capsules(poses, activations)
        if window is None:
            return joined(ops.route(children, weight, algorithm, **given))
        return joined(ops.route_conv(children, weight, window, algorithm, **given))

    return run


def compare(algorithm: str, inputs: list[Tensor], window: Window | None = None, dtype=torch.float32, **options: Any):
    options = {**OPTIONS[algorithm], **options}
    kernel, reference = (route(algorithm, backend, window, **options) for backend in ("cpu", "reference"))
    assert_matches_reference(kernel, reference, inputs, dtype=dtype, factor=FACTOR, draws=DRAWS)


def results(function, inputs: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    out = function(*leaves)
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


@pytest.mark.usefixtures("exact_digamma")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", DENSE)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_dense_layers(algorithm, sizes, dtype):
    compare(algorithm, dense_inputs(sizes), dtype=dtype)


@pytest.mark.usefixtures("exact_digamma")
@pytest.mark.parametrize("poses", POSES)
@pytest.mark.parametrize("sizes", GRIDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_grids(algorithm, sizes, poses):
    if algorithm == "em" and poses[1:] == (16, 16):
        pytest.skip("the kernel of 4x4 matrices has tests of its own")
    compare(algorithm, grid_inputs(sizes, poses), Window(*sizes[:3], pose=poses[0]))


@pytest.mark.usefixtures("exact_digamma")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("competition", ["global", "local", "positions"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_competition(algorithm, competition, dtype):
    for poses in (POSES[0], POSES[4]):
        window = Window(*GRIDS[1][:3], competition, poses[0])
        compare(algorithm, grid_inputs(GRIDS[1], poses), window, dtype)


@pytest.mark.usefixtures("exact_digamma")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_shared_weights_and_offsets(algorithm):
    compare(algorithm, dense_inputs(DENSE[5], shared=True))
    offsets = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
    for poses in (POSES[0], POSES[3], POSES[4]):
        window = Window(*GRIDS[-1][:3], pose=poses[0], offsets=offsets)
        compare(algorithm, grid_inputs(GRIDS[-1], poses, shared=True), window)


@pytest.mark.usefixtures("exact_digamma")
@pytest.mark.parametrize("iters", [1, 2, 5])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_iterations(algorithm, iters):
    options: dict[str, Any] = {"inverse_temp": 0.3} if algorithm == "em" else {}
    compare(algorithm, dense_inputs(DENSE[4]), iters=iters, **options)


@pytest.mark.parametrize("background", [None, -4.0])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.3},
        {"sharpness": [0.25, 2.0, 0.5]},
        {"start": "types"},
        {"variance_floor": 0.02, "mass_floor": 0.1, "momentum": 0.1, "sharpness": 0.5},
    ],
)
def test_options_of_em(options, background):
    none = [] if background is None else [torch.tensor(background)]
    compare("em", [*dense_inputs(DENSE[6]), *none], **options)
    for competition in ("global", "local", "positions"):
        window = Window(*GRIDS[1][:3], competition, "vector")
        compare("em", [*grid_inputs(GRIDS[1], POSES[0]), *none], window, **options)


@pytest.mark.usefixtures("exact_digamma")
def test_prior_of_variational_bayes():
    compare("variational", dense_inputs(DENSE[5]), prior=Prior(concentration=0.4, strength=2.5, scatter=0.3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e6])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_values_and_gradients_are_finite(algorithm, scale, dtype):
    inputs = [tensor.to(dtype) for tensor in dense_inputs(DENSE[5], scale=scale)]
    for activations in (inputs[1], torch.zeros_like(inputs[1])):
        found = results(route(algorithm, "cpu", **OPTIONS[algorithm]), [inputs[0], activations, *inputs[2:]])
        assert all(bool(tensor.isfinite().all()) for tensor in found)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_threads_change_no_bit(algorithm):
    grid = ((8, 9), (3, 3), 1, 2, 5, 37)
    cases = [
        (route(algorithm, "cpu", **OPTIONS[algorithm]), dense_inputs((37, 300, 5, 8, 16))),
        (route(algorithm, "cpu", Window(*grid[:3], pose="vector"), **OPTIONS[algorithm]), grid_inputs(grid, POSES[1])),
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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_size_of_the_batch_changes_no_bit_of_a_sample(algorithm):
    poses, activations, *rest = dense_inputs((37, 130, 3, 8, 16))
    function = route(algorithm, "cpu", **OPTIONS[algorithm])
    assert torch.equal(function(poses, activations, *rest)[20:21], function(poses[20:21], activations[20:21], *rest))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_empty_batch_has_an_empty_result_and_no_gradient(algorithm):
    poses, activations, *rest = dense_inputs(DENSE[4])
    leaves = [tensor.requires_grad_() for tensor in rest]
    out = route(algorithm, "cpu", **OPTIONS[algorithm])(poses[:0], activations[:0], *leaves)
    assert out.shape == (0, 3, 17)
    assert all(bool((grad == 0).all()) for grad in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_strides_and_half_precision(algorithm):
    poses, *rest = dense_inputs(DENSE[6])
    function = route(algorithm, "cpu", **OPTIONS[algorithm])
    assert torch.equal(function(poses.transpose(0, 1).contiguous().transpose(0, 1), *rest), function(poses, *rest))
    assert function(*(tensor.to(torch.bfloat16) for tensor in (poses, *rest))).dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("level", ["portable", "avx2"])
def test_lower_instruction_sets_agree(level):
    code = f"""
import runpy
tests = runpy.run_path({__file__!r})
for algorithm in tests["ALGORITHMS"]:
    for sizes in tests["DENSE"][4:7]:
        tests["compare"](algorithm, tests["dense_inputs"](sizes))
    for poses in tests["POSES"]:
        tests["compare"](algorithm, tests["grid_inputs"](tests["GRIDS"][1], poses),
            tests["Window"](*tests["GRIDS"][1][:3], pose=poses[0]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("routing", ["em", "variational"])
def test_layers_take_it_and_agree_with_the_reference(routing):
    torch.manual_seed(0)
    flat = Capsules(torch.randn(3, 20, 8), torch.rand(3, 20))
    grid = Capsules(torch.randn(2, 6, 6, 4, 9), torch.rand(2, 6, 6, 4))
    for make, children in (
        (lambda backend: CapsLinear(20, 5, 8, 12, routing=routing, backend=backend), flat),
        (lambda backend: CapsLinear(None, 5, 8, 12, routing=routing, backend=backend), flat),
        (lambda backend: CapsConv2d(4, 6, 3, 2, dims=(9, 9), routing=routing, backend=backend), grid),
        (lambda backend: CapsConv2d(4, 6, dims=(9, 5), pose="vector", routing=routing, backend=backend), grid),
    ):
        fast, slow = make("cpu"), make("reference")
        slow.load_state_dict(fast.state_dict())
        for one, other in zip(fast(children), slow(children), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_what_is_left_to_the_reference_says_why():
    children = Capsules(torch.randn(1, 5, 8), torch.rand(1, 5))
    for routing in (EMRouting(covariance="full"), VariationalRouting(covariance="full")):
        with raises_about(ConfigError, "backend", "'cpu'", "covariance"):
            CapsLinear(5, 3, 8, 4, routing=routing, backend="cpu")(children)


def test_errors_name_the_argument():
    poses, activations, weight, beta_u, beta_a = dense_inputs(DENSE[4])
    betas = {"beta_u": beta_u, "beta_a": beta_a}
    for algorithm in ALGORITHMS:
        with raises_about(ShapeError, "activations", (5, 8)):
            ops.route(Capsules(poses, activations[:, 1:]), weight, algorithm, backend="cpu", **betas)
        with raises_about(ShapeError, "betas", (2, 2)):
            short = {name: beta[1:] for name, beta in betas.items()}
            ops.route(Capsules(poses, activations), weight, algorithm, backend="cpu", **short)
        with raises_about(ConfigError, "iters", 0):
            ops.route(Capsules(poses, activations), weight, algorithm, backend="cpu", iters=0, **betas)
