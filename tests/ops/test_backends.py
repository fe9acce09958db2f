"""The choice of a backend: availability, support, function transforms, and what the errors name."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.ops import ROUTINGS, Kernel, Routing, Step, _backends, _native

CPU = torch.device("cpu")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_library", None)
    monkeypatch.setattr(_native, "_detail", "the CPU kernel was not built; do this")
    monkeypatch.setattr(_backends, "_warned", False)
    monkeypatch.setattr(_backends, "_REASONS", {})


@pytest.fixture
def with_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_library", object())
    monkeypatch.setattr(_native, "_detail", "avx2")
    monkeypatch.setattr(_backends, "_REASONS", {})


def children(in_caps: int = 6) -> tc.Capsules:
    poses = torch.randn(2, in_caps, 4)
    return tc.Capsules(poses, poses.norm(dim=-1))


def mean_steps(votes: Tensor, *, bias: Tensor | None = None, power: float = 1.0) -> Iterator[Step]:
    logits = votes.new_zeros(votes.shape[:3])
    poses = votes.mean(dim=1) ** power
    yield Step(logits, logits.softmax(-1), poses, torch.linalg.vector_norm(poses, dim=-1))


class Counted:
    """A kernel that counts its calls and its availability checks."""

    def __init__(self) -> None:
        self.calls = self.checks = 0
        self.missing: str | None = None

    def dense(self, children: tc.Capsules, weight: Tensor, *, power: float = 1.0) -> tc.Capsules:
        self.calls += 1
        last = next(mean_steps(ops.vote(children.poses, weight), power=power))
        return tc.Capsules(last.poses, last.activations)

    def unavailable(self, device: torch.device, dtype: torch.dtype) -> str | None:
        self.checks += 1
        return self.missing

    def unsupported(self, children: tc.Capsules, weight: Tensor, *, power: float = 1.0, **params: Any) -> str | None:
        return None if power < 3 else "powers below 3"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    kernel = Counted()
    monkeypatch.setattr(ROUTINGS, "_items", dict(ROUTINGS._items))
    ops.register_routing(
        Routing(
            "mean",
            mean_steps,
            (Kernel("mine", kernel.dense, unavailable=kernel.unavailable, unsupported=kernel.unsupported),),
            takes_bias=True,
        )
    )
    return kernel


def route(**params: Any) -> tc.Capsules:
    return ops.route(children(), torch.randn(6, 3, 4, 5), "mean", **params)


def test_auto_uses_the_kernel(counted: Counted) -> None:
    route()
    assert counted.calls == 1
    route(backend="mine")
    assert counted.calls == 2
    route(backend="reference")
    assert counted.calls == 2


def test_availability_is_looked_up_once(counted: Counted) -> None:
    for _ in range(3):
        route()
    assert counted.checks == 1
    assert counted.calls == 3


def test_unavailable_kernel(counted: Counted) -> None:
    counted.missing = "no such device"
    assert route().poses.shape == (2, 3, 5)
    assert counted.calls == 0
    with raises_about(ConfigError, "backend", "'mine'", "no such device"):
        route(backend="mine")


def test_unsupported_case(counted: Counted) -> None:
    route(power=4.0)
    assert counted.calls == 0
    with raises_about(ConfigError, "backend", "'mine'", "powers below 3"):
        route(backend="mine", power=4.0)


def test_option_of_reference_only(counted: Counted) -> None:
    route(bias=torch.zeros(3, 5))
    assert counted.calls == 0
    with raises_about(ConfigError, "backend", "'mine'", "'bias'"):
        route(backend="mine", bias=torch.zeros(3, 5))
    route(backend="mine", bias=None)
    assert counted.calls == 1


def test_dense_kernel_rejects_convolution(counted: Counted) -> None:
    window = ops.Window((2, 2), (2, 2), pose="vector")
    grid = tc.Capsules(torch.randn(1, 2, 2, 3, 4), torch.ones(1, 2, 2, 3))
    with raises_about(ConfigError, "backend", "'mine'", "convolution"):
        ops.route_conv(grid, torch.randn(12, 3, 4, 5), window, "mean", backend="mine")


@pytest.mark.parametrize("params", [{"pover": 1.0}, {"votes": None, "iters": 3}])
def test_unknown_option(counted: Counted, params: dict[str, Any]) -> None:
    with raises_about(ConfigError, "unknown option", list(params)[-1]):
        route(**params)


def test_unknown_routing() -> None:
    with raises_about(UnknownNameError, "'dinamic'", "'dynamic'"):
        ops.route(children(), torch.randn(6, 3, 4, 5), "dinamic")


def test_registered_name_is_taken() -> None:
    with raises_about(ConfigError, "'dynamic'"):
        ops.register_routing(Routing("dynamic", mean_steps))


@pytest.mark.parametrize("name", ["auto", "reference"])
def test_kernel_names_are_unique(name: str) -> None:
    with raises_about(ConfigError, "backend", name):
        Kernel(name)


# The first use of jvp compiles decompositions with torch.jit.script.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_transforms_use_the_reference(counted: Counted) -> None:
    weight = torch.randn(6, 3, 4, 5)

    def total(poses: Tensor, backend: str = "auto") -> Tensor:
        return ops.route(tc.Capsules(poses, poses.norm(dim=-1)), weight, "mean", backend=backend).poses.sum()

    poses = torch.randn(2, 6, 4)
    exact = ops.vote(torch.ones(2, 6, 4), weight).mean(dim=1).sum()
    tangent = torch.func.jvp(total, (poses,), (torch.ones_like(poses),))[1]
    torch.testing.assert_close(tangent, exact)
    torch.func.grad(total)(poses)
    torch.func.vmap(total)(poses.unsqueeze(0))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(poses, torch.ones_like(poses))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(total(dual)).tangent, exact)
        with raises_about(ConfigError, "backend", "'mine'", "forward-mode"):
            total(dual, "mine")
    assert counted.calls == 0
    with raises_about(ConfigError, "backend", "'mine'", "torch.func"):
        torch.func.grad(total)(poses, "mine")


def test_composite_kernel_serves_transforms(counted: Counted) -> None:
    ops.register_routing(Routing("plain", mean_steps, (Kernel("mine", counted.dense, composite=True),)))
    weight = torch.randn(6, 3, 4, 5)
    torch.func.grad(lambda poses: ops.route(tc.Capsules(poses, poses[..., 0]), weight, "plain").poses.sum())(
        torch.randn(2, 6, 4)
    )
    assert counted.calls == 1


@pytest.mark.usefixtures("with_library")
def test_fastest_backend() -> None:
    assert ops.fastest_backend("dynamic", CPU, torch.float32) == "cpu"
    assert ops.fastest_backend("dynamic", CPU, torch.float64) == "cpu"
    assert ops.fastest_backend("dynamic", torch.device("meta"), torch.float32) == "reference"
    assert ops.fastest_backend("variational", CPU, torch.float32) in ("cpu", "recompute")


def test_unsupported_type_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "_library", object())
    monkeypatch.setattr(_backends, "_REASONS", {})
    whole = tc.Capsules(torch.ones(2, 6, 4, dtype=torch.int64), torch.ones(2, 6, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = _backends.choose_kernel(
            ROUTINGS["dynamic"], "auto", whole, torch.ones(6, 3, 4, 5, dtype=torch.int64), None, {}
        )
    assert kernel is None


@pytest.mark.usefixtures("without_library")
def test_missing_library_warns_once() -> None:
    layer = tc.nn.CapsLinear(6, 3, 4, 5)
    capsules = children()
    with pytest.warns(UserWarning, match="routing runs without its CPU kernel, .* not built; do this"):
        out = layer(capsules)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(layer(capsules).poses, out.poses)
    layer.backend = "reference"
    assert torch.equal(layer(capsules).poses, out.poses)


@pytest.mark.usefixtures("without_library")
def test_named_backend_without_library() -> None:
    layer = tc.nn.CapsLinear(6, 3, 4, 5, backend="cpu")
    with raises_about(ConfigError, "backend", "'cpu'", "not built; do this"):
        layer(children())


def test_unknown_backend() -> None:
    with raises_about(ConfigError, "backend", "'fast'", "auto, reference, triton, cpu"):
        tc.nn.CapsLinear(6, 3, 4, 5, backend="fast")


def test_backend_missing_in_routing() -> None:
    with raises_about(ConfigError, "backend", "'triton'", "variational"):
        tc.nn.CapsLinear(6, 3, 4, 5, routing="variational", backend="triton")


@pytest.mark.parametrize("in_caps", [6, None])
def test_available_backends_match_the_reference(in_caps: int | None) -> None:
    layer = tc.nn.CapsLinear(in_caps, 3, 4, 5, bias=True, backend="reference").double()
    capsules = tc.Capsules(*(tensor.double() for tensor in children()))
    expected = layer(capsules)
    known = [kernel for kernel in ops.list_kernels() if kernel.algorithm == "dynamic"]
    for backend in ["auto", *(kernel.backend for kernel in known if kernel.available)]:
        layer.backend = backend
        if backend == "triton":
            continue
        out = layer(capsules)
        torch.testing.assert_close(out.poses, expected.poses)
        torch.testing.assert_close(out.activations, expected.activations)


@pytest.mark.usefixtures("with_library")
def test_available_kernels_are_described() -> None:
    rows = {kernel.backend: kernel for kernel in ops.list_kernels() if kernel.algorithm == "dynamic"}
    assert rows["cpu"] == ops.KernelStatus("dynamic", "cpu", True, "avx2")
    if not rows["triton"].available:
        assert rows["triton"].detail


@pytest.mark.usefixtures("without_library")
def test_missing_kernels_give_the_reason() -> None:
    kernel, *_ = (kernel for kernel in ops.list_kernels() if kernel.backend == "cpu")
    assert not kernel.available
    assert kernel.detail == "the CPU kernel was not built; do this"


def test_repr_shows_a_named_backend() -> None:
    assert "backend='reference'" in repr(tc.nn.CapsLinear(6, 3, 4, 5, backend="reference"))
    assert "backend" not in repr(tc.nn.CapsLinear(6, 3, 4, 5))
