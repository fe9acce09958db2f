import warnings

import pytest
import torch

import torchcaps as tc
from torchcaps.errors import ConfigError
from torchcaps.ops import _dispatch, _library

CPU = torch.device("cpu")


@pytest.fixture
def without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_library", None)
    monkeypatch.setattr(_library, "_detail", "the CPU kernel was not built; do this")
    monkeypatch.setattr(_dispatch, "_warned", False)


@pytest.fixture
def with_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_library, "_library", object())
    monkeypatch.setattr(_library, "_detail", "avx2")


def children(in_caps: int = 6) -> tc.Capsules:
    poses = torch.randn(2, in_caps, 4)
    return tc.Capsules(poses, poses.norm(dim=-1))


@pytest.mark.usefixtures("with_kernel")
def test_auto_takes_the_kernel_where_it_can_serve() -> None:
    assert _dispatch.choose("auto", "dynamic", CPU, torch.float32) == "cpu"
    assert _dispatch.choose("auto", "dynamic", CPU, torch.float64) == "cpu"
    assert _dispatch.choose("auto", "dynamic", torch.device("meta"), torch.float32) == "reference"
    assert _dispatch.choose("reference", "dynamic", CPU, torch.float32) == "reference"


@pytest.mark.usefixtures("with_kernel")
def test_a_missing_type_is_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _dispatch.choose("auto", "dynamic", CPU, torch.int64) == "reference"


@pytest.mark.usefixtures("without_kernel")
def test_without_the_kernel_auto_warns_once_and_takes_the_reference() -> None:
    layer = tc.nn.CapsLinear(6, 3, 4, 5)
    capsules = children()
    with pytest.warns(UserWarning, match="routing runs without its CPU kernel, .* not built; do this"):
        out = layer(capsules)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(layer(capsules).poses, out.poses)
    layer.backend = "reference"
    assert torch.equal(layer(capsules).poses, out.poses)


@pytest.mark.usefixtures("without_kernel")
def test_asking_for_a_missing_kernel_is_an_error() -> None:
    layer = tc.nn.CapsLinear(6, 3, 4, 5, backend="cpu")
    with pytest.raises(
        ConfigError, match=r"backend: expected one that is available, got 'cpu' \(the CPU kernel was not"
    ):
        layer(children())


def test_unknown_backend() -> None:
    with pytest.raises(ConfigError, match="backend: expected one of auto, reference, lean, cpu, triton, got 'fast'"):
        tc.nn.CapsLinear(6, 3, 4, 5, backend="fast")  # pyright: ignore[reportArgumentType]


def test_backend_that_the_algorithm_does_not_have() -> None:
    with pytest.raises(ConfigError, match="backend: expected one of auto, reference for plain routing, got 'cpu'"):
        _dispatch.check_backend("cpu", "plain")
    _dispatch.check_backend("auto", "plain")
    assert _dispatch.choose("auto", "plain", CPU, torch.float32) == "reference"


@pytest.mark.parametrize("in_caps", [6, None])
def test_every_available_backend_gives_what_the_reference_gives(in_caps: int | None) -> None:
    layer = tc.nn.CapsLinear(in_caps, 3, 4, 5, bias=True, backend="reference").double()
    capsules = tc.Capsules(*(tensor.double() for tensor in children()))
    expected = layer(capsules)
    known = [kernel for kernel in _dispatch.kernels() if kernel.algorithm == "dynamic"]
    for backend in ["auto", *(kernel.backend for kernel in known if kernel.available)]:
        layer.backend = backend  # pyright: ignore[reportAttributeAccessIssue]
        if backend == "triton":
            continue
        out = layer(capsules)
        torch.testing.assert_close(out.poses, expected.poses)
        torch.testing.assert_close(out.activations, expected.activations)


@pytest.mark.usefixtures("with_kernel")
def test_kernels_say_what_they_are() -> None:
    found = {kernel.backend: kernel for kernel in _dispatch.kernels() if kernel.algorithm == "dynamic"}
    assert found["cpu"] == _dispatch.Kernel("dynamic", "cpu", True, "avx2")
    if not found["triton"].available:
        assert found["triton"].detail


@pytest.mark.usefixtures("without_kernel")
def test_kernels_say_why_they_are_missing() -> None:
    kernel, *_ = (kernel for kernel in _dispatch.kernels() if kernel.backend == "cpu")
    assert not kernel.available
    assert kernel.detail == "the CPU kernel was not built; do this"


def test_a_layer_shows_a_backend_that_was_asked_for() -> None:
    assert "backend='reference'" in repr(tc.nn.CapsLinear(6, 3, 4, 5, backend="reference"))
    assert "backend" not in repr(tc.nn.CapsLinear(6, 3, 4, 5))
