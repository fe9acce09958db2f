"""EM routing against outputs of the authors' released code, and against a second derivation in numpy."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import em_numpy
from raising import raises_about
from torchcaps import ops
from torchcaps.errors import ConfigError
from torchcaps.ops import Window
from torchcaps.ops.em.released import released_softmax
from torchcaps.types import Capsules

GOLDEN = np.load(Path(__file__).with_name("em_golden.npz"))
PRICE = math.log(2 * math.pi) + 1
MEANS, LOGITS = 1e-5, 1e-4


def golden(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.from_numpy(GOLDEN[name]).to(dtype)


def temps(final_beta: float, iters: int) -> list[float]:
    return [2 * final_beta * (1 - 0.95 ** (n + 1)) for n in range(iters)]


def betas(name: str, variant: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """The betas that correspond to the two biases of the released code."""
    sigma, activation = (golden(f"{name}_{bias}", dtype).flatten() for bias in ("sb", "ab"))
    if variant == "fast":
        return {"beta_u": ((sigma.square() + 5e-4).log() + PRICE) / 2, "beta_a": -400 * activation}
    return {"beta_u": sigma * PRICE / 2, "beta_a": -2500 * activation}


def grid(stride: int, dtype: torch.dtype = torch.float32) -> tuple[Capsules, Tensor, Window]:
    poses, weight = golden(f"s{stride}_poses", dtype), golden(f"s{stride}_W", dtype)
    children = Capsules(
        poses.flatten(2, 3).permute(0, 3, 4, 1, 2), golden(f"s{stride}_a_in", dtype).permute(0, 2, 3, 1)
    )
    weight = weight.permute(1, 2, 0, 5, 3, 4).flatten(0, 2)  # [K*K*I, J, 4, 4]
    return children, weight, Window((poses.shape[-2], poses.shape[-1]), (3, 3), stride)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("name", ["class", "class_tight"])
def test_class_layer_equals_released_code(name, iters, dtype):
    trace = ops.trace(
        "em",
        golden(f"{name}_wx", dtype)[..., 0, 0],
        golden(f"{name}_act", dtype).flatten(1),
        **betas(name, "default", dtype),
        iters=iters,
        inverse_temp=temps(0.1, iters),
        variance_floor=5e-4,
        momentum=0.1,
        mass_floor=1e-5,
    )
    center, logit = golden(f"{name}_center{iters}", dtype), golden(f"{name}_logit{iters}", dtype)
    torch.testing.assert_close(trace.poses[-1], center[:, 0, :, :, 0, 0], rtol=0, atol=MEANS)
    torch.testing.assert_close(trace.extras["activity"][-1], logit.flatten(1), rtol=0, atol=LOGITS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("variant", ["slow", "fast"])
def test_convolution_equals_released_code(variant, stride, iters, dtype):
    children, weight, window = grid(stride, dtype)
    seen = window.gather(children)
    trace = ops.trace(
        "em",
        window.votes(seen.poses, weight),
        seen.activations,
        **betas(f"s{stride}", variant, dtype),
        iters=iters,
        inverse_temp=temps(0.4, iters),
        variance_floor=5e-4,
        momentum=0.1,
        start="types",
        softmax=released_softmax(window, fast=variant == "fast"),
    )
    center = golden(f"s{stride}_{variant}_center{iters}", dtype)[:, 0, ..., 0, 0].permute(0, 3, 4, 1, 2).flatten(0, 2)
    logit = golden(f"s{stride}_{variant}_logit{iters}", dtype)[:, 0, :, 0, ..., 0, 0].permute(0, 2, 3, 1).flatten(0, 2)
    torch.testing.assert_close(trace.poses[-1], center, rtol=0, atol=MEANS)
    torch.testing.assert_close(trace.extras["activity"][-1], logit, rtol=0, atol=LOGITS)


@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("name", ["class", "class_tight"])
def test_class_layer_equals_second_derivation(name, iters):
    votes, activations = GOLDEN[f"{name}_wx"][..., 0, 0].astype(float), GOLDEN[f"{name}_act"].reshape(3, -1)
    prices = {key: value.numpy() for key, value in betas(name, "default", torch.float64).items()}
    for sample in range(3):
        layer = em_numpy.class_layer(votes[sample], activations[sample], **prices)
        mean, activity = em_numpy.route(layer, temps(0.1, iters), em_numpy.softmax)
        for j in range(5):
            np.testing.assert_allclose(
                mean[0, 0, j], GOLDEN[f"{name}_center{iters}"][sample, 0, j, :, 0, 0], rtol=0, atol=MEANS
            )
            assert activity[0, 0, j] == pytest.approx(
                float(GOLDEN[f"{name}_logit{iters}"][sample, 0, j].item()), abs=LOGITS
            )


@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("variant", ["slow", "fast"])
def test_convolution_equals_second_derivation(variant, stride, iters):
    prices = {key: value.numpy() for key, value in betas(f"s{stride}", variant, torch.float64).items()}
    poses, weight, present = (GOLDEN[f"s{stride}_{name}"].astype(float) for name in ("poses", "W", "a_in"))
    normalise = em_numpy.fast_normaliser if variant == "fast" else em_numpy.default_normaliser
    layer = em_numpy.conv_layer(poses[0], weight, present[0], stride, **prices)
    mean, activity = em_numpy.route(layer, temps(0.4, iters), normalise)
    for (row, column, j), value in mean.items():
        expected = GOLDEN[f"s{stride}_{variant}_center{iters}"][0, 0, j, :, row, column, 0, 0]
        np.testing.assert_allclose(value, expected, rtol=0, atol=MEANS)
        logit = GOLDEN[f"s{stride}_{variant}_logit{iters}"][0, 0, j, 0, row, column, 0, 0]
        assert activity[row, column, j] == pytest.approx(float(logit), abs=LOGITS)


def test_default_variant_without_floors():
    window = Window((6, 6), (3, 3))
    logits = torch.randn(2 * 16, 18, 4, dtype=torch.float64)
    exact = Window((6, 6), (3, 3), competition="positions").softmax(logits)
    torch.testing.assert_close(released_softmax(window)(logits), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(released_softmax(window, fast=True)(logits), window.softmax(logits))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("fast", [False, True])
def test_exported_normalisers(fast, stride, monkeypatch):
    window = Window((7, 7), (3, 3), stride)
    logits = torch.randn(2 * math.prod(window.positions), 18, 4, dtype=torch.float64)
    expected = released_softmax(window, fast=fast)(logits)
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: True)
    torch.testing.assert_close(released_softmax(window, fast=fast)(logits), expected)


def test_distant_children_are_dropped():
    window = Window((6, 6), (3, 3))
    logits = torch.zeros(16, 9, 2, dtype=torch.float64)
    logits[:, 0] = -40.0
    assert float(released_softmax(window)(logits)[0, 0].max()) < 1e-9
    assert float(window.softmax(logits)[0, 0].sum()) == pytest.approx(1)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_gradcheck(fast, stride):
    window = Window((5, 5), (3, 3), stride)
    count = window.positions[0] * window.positions[1]
    logits = torch.randn(2 * count, 9, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(released_softmax(window, fast=fast), logits)


def test_background_is_refused():
    with raises_about(ConfigError, "background", -3.0):
        released_softmax(Window((5, 5), (3, 3)))(torch.zeros(9, 9, 2), background=-3.0)
