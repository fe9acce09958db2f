"""The options of EM routing in the C++ kernel, compared with the reference: values, and the gradient of every input."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.nn import CapsConv2d, EMRouting
from torchcaps.ops import Window, _native
from torchcaps.testing import assert_matches_reference
from torchcaps.types import Capsules

missing = _native.missing_reason()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))

COMPETITIONS = ("global", "local", "positions")
SHARPNESS = (1.0, 0.25, [0.25, 2.0, 0.5])
MOMENTUM = (0.0, 0.3)
BACKGROUND = (None, -12.0)
START = ("parents", "types")
NAMES = ("poses", "activations", "weight", "beta_u", "beta_a", "background")


def inputs(background: float | None, dtype: torch.dtype, *, parents: int = 5, size: int = 5) -> list[Tensor]:
    generator = torch.Generator().manual_seed(parents)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    given = [
        normal(2, size, size + 1, 2, 16),
        torch.rand(2, size, size + 1, 2, generator=generator, dtype=torch.float64),
        0.5 * normal(18, parents, 4, 4),
        0.3 * normal(parents),
        0.3 * normal(parents),
    ]
    given += [] if background is None else [torch.tensor(background)]
    return [tensor.to(dtype) for tensor in given]


def route(backend: str, window: Window, **options: Any):
    """One of the two implementations as a function from tensors to all of the result in one tensor."""

    def run(*tensors: Tensor) -> Tensor:
        given = dict(zip(NAMES, tensors, strict=False))
        children = Capsules(given.pop("poses"), given.pop("activations"))
        out = ops.route_conv(children, given.pop("weight"), window, "em", backend=backend, **given, **options)
        return torch.cat([out.poses, out.activations.unsqueeze(-1)], dim=-1)

    return run


def results(function, tensors: list[Tensor]) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    out = function(*leaves)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    grads = torch.autograd.grad(out, leaves, weights, allow_unused=True)
    return [out, *(torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, grads, strict=True))]


@pytest.mark.parametrize(("iters", "parents"), [(1, 5), (3, 1), (3, 18)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("competition", COMPETITIONS)
def test_option_combinations_in_float64(competition, stride, iters, parents):
    window = Window((5, 6), (3, 3), stride, competition)
    for sharpness, momentum, background, start in itertools.product(SHARPNESS, MOMENTUM, BACKGROUND, START):
        options: dict[str, Any] = {
            "iters": iters,
            "inverse_temp": [0.2 * (n + 1) for n in range(iters)],
            "sharpness": sharpness[:iters] if isinstance(sharpness, list | tuple) else sharpness,
            "momentum": momentum,
            "start": start,
            "mass_floor": 1e-6,
        }
        tensors = inputs(background, torch.float64, parents=parents)
        both = [results(route(backend, window, **options), tensors) for backend in ("cpu", "reference")]
        for name, one, other in zip(("out", *NAMES), *both, strict=False):
            one, other = one.detach(), other.detach()
            error = float((one - other).abs().max() / other.abs().max().clamp(min=1e-9))
            assert error < 1e-10, (name, options, background)


@pytest.mark.parametrize("competition", COMPETITIONS)
@pytest.mark.parametrize(
    "options",
    [
        {"sharpness": 0.25},
        {"sharpness": [0.25, 1.0, 1.0], "momentum": 0.1},
        {"background": -12.0},
        {"background": -12.0, "sharpness": 0.5, "momentum": 0.3, "start": "types"},
    ],
)
@pytest.mark.parametrize("parents", [3, 18])
def test_float32_error_is_within_eager_error(competition, options, parents):
    window = Window((5, 6), (3, 3), 2, competition)
    kernel, reference = (route(backend, window, **options) for backend in ("cpu", "reference"))
    assert_matches_reference(kernel, reference, inputs(None, torch.float32, parents=parents), factor=8.0)


@pytest.mark.parametrize("competition", COMPETITIONS)
def test_background_gradient_in_float32(competition):
    window = Window((5, 6), (3, 3), 1, competition)
    # A single number, in which the error of torch may be small by chance.
    single, double = (
        results(route("cpu", window), inputs(-12.0, dtype))[-1] for dtype in (torch.float32, torch.float64)
    )
    assert abs(float(double)) > 1e-3
    assert float(single) == pytest.approx(float(double), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 3, 10])
@pytest.mark.parametrize("case", ["zero", "equal", "huge", "tiny", "silent"])
@pytest.mark.parametrize("sharpness", [0.0, 0.25, 1000.0])
@pytest.mark.parametrize("background", [None, -1e4, 1e4])
@pytest.mark.parametrize("competition", ["global", "positions"])
def test_values_and_gradients_are_finite(competition, background, sharpness, case, iters, dtype):
    tensors = inputs(background, dtype, size=4)
    tensors[0] *= {"zero": 0.0, "huge": 1e12, "tiny": 1e-12}.get(case, 1.0)
    if case == "equal":
        tensors[0] = tensors[0][:, :1, :1, :1].expand_as(tensors[0]).clone()
        tensors[2] = tensors[2][:1, :1].expand_as(tensors[2]).clone()
    if case == "silent":
        tensors[1] = torch.zeros_like(tensors[1])
    window = Window((4, 5), (3, 3), competition=competition)
    found = results(route("cpu", window, iters=iters, sharpness=sharpness, momentum=0.2), tensors)
    assert all(bool(tensor.isfinite().all()) for tensor in found)


def test_leaking_coupling_lowers_activations():
    window = Window((5, 6), (3, 3))
    tensors = inputs(None, torch.float64)
    with_all = route("cpu", window, iters=2)(*tensors)
    none = route("cpu", window, iters=2)(*tensors, torch.tensor(1e3, dtype=torch.float64))
    assert float(with_all[..., :16].abs().max()) > 0.1
    assert bool((none[..., :16] == 0).all())


def test_same_bits_for_any_thread_count():
    function = route("cpu", Window((5, 6), (3, 3), competition="positions"), sharpness=0.25, momentum=0.1)
    tensors = inputs(-12.0, torch.float32, parents=18)
    tensors[0], tensors[1] = tensors[0].repeat(10, 1, 1, 1, 1), tensors[1].repeat(10, 1, 1, 1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(results(function, tensors))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_layer_uses_kernel_with_every_option():
    torch.manual_seed(0)
    children = Capsules(torch.randn(2, 6, 6, 4, 16), torch.rand(2, 6, 6, 4))
    routing = {"name": "em", "sharpness": 0.25, "background": -15.0, "learn_background": True, "momentum": 0.1}
    fast, slow = (CapsConv2d(4, 6, 3, 2, routing=routing, backend=backend) for backend in ("cpu", "reference"))
    slow.load_state_dict(fast.state_dict())
    for one, other in zip(fast(children), slow(children), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_unsupported_cases_give_the_reason():
    children = Capsules(torch.randn(1, 5, 5, 2, 16), torch.rand(1, 5, 5, 2))
    for routing, reason in (
        (EMRouting.released(), "softmax"),
        (EMRouting(covariance="full"), "covariance"),
    ):
        layer = CapsConv2d(2, 3, routing=routing, backend="cpu")
        with raises_about(ConfigError, "backend", "'cpu'", reason):
            layer(children)
