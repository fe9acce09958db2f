"""The network of the authors' released code: routers, initial values, and outputs computed in numpy."""

import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

import em_numpy
from torchcaps.models import ReleasedMatrixCapsNet, create_model
from torchcaps.nn import CapsConv2d, ClassCaps, EMRouting, SpreadLoss
from torchcaps.types import Capsules

GOLDEN = np.load(Path(__file__).parents[1] / "ops" / "em" / "em_golden.npz")
PRICE = math.log(2 * math.pi) + 1
SMALL = {"image_shape": (2, 32, 32), "num_classes": 5, "widths": (6, 3, 3, 3)}


def golden(name: str) -> Tensor:
    return torch.from_numpy(GOLDEN[name])


@torch.no_grad()
@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("fast", [False, True])
def test_layer_equals_released_code(fast, stride, iters):
    router = EMRouting.released(iters, fast=fast)
    # The arrays were made with a final beta of 0.4 at this place, before the factor of the fast variant.
    router.inverse_temp = tuple(value * 40 / (4 if fast else 1) for value in router.inverse_temp)
    layer = CapsConv2d(4, 4, 3, stride, routing=router, competition="global" if fast else "positions")
    layer.weight.copy_(golden(f"s{stride}_W").permute(1, 2, 0, 5, 3, 4).flatten(0, 2))
    sigma, active = golden(f"s{stride}_sb").flatten(), golden(f"s{stride}_ab").flatten()
    assert router.beta_u is not None
    assert router.beta_a is not None
    router.beta_u.copy_(((sigma.square() + 5e-4).log() + PRICE) / 2 if fast else sigma * PRICE / 2)
    router.beta_a.copy_((-400 if fast else -2500) * active)
    poses = golden(f"s{stride}_poses").flatten(2, 3).permute(0, 3, 4, 1, 2)
    out = layer(Capsules(poses, golden(f"s{stride}_a_in").permute(0, 2, 3, 1)))
    variant = "fast" if fast else "slow"
    center = golden(f"s{stride}_{variant}_center{iters}")[:, 0, ..., 0, 0].permute(0, 3, 4, 1, 2)
    logit = golden(f"s{stride}_{variant}_logit{iters}")[:, 0, :, 0, ..., 0, 0].permute(0, 2, 3, 1)
    torch.testing.assert_close(out.poses, center, rtol=0, atol=1e-5)
    torch.testing.assert_close(out.activations, logit.sigmoid(), rtol=0, atol=1e-5)


@torch.no_grad()
def test_class_layer_equals_released_code():
    layer = ClassCaps(4, 5, routing=EMRouting.released(layer="class"), centres=([0.0] * 3, [0.0] * 3))
    layer.offset_values = golden("connector_grid").flatten(0, 1).tolist()
    # One matrix per type, its columns in the order column * classes + class.
    layer.weight.copy_(golden("connector_var_cls.weights_1").unflatten(2, (4, 5)).permute(0, 3, 1, 2))
    # The betas are at their initial values, as in the released code.
    assert bool((golden("connector_var_cls.sigma_biases_1") == 2).all())
    assert bool((golden("connector_var_cls.activation_biases_1") == 1).all())
    poses = golden("connector_x").permute(0, 3, 4, 1, 2)
    present = golden("connector_a").unflatten(1, (4, 3, 3)).permute(0, 2, 3, 1)
    out = layer(Capsules(poses, present))
    torch.testing.assert_close(out.poses, golden("connector_center"), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.activations, golden("connector_act"), rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("fast", [False, True])
def test_initial_values(fast):
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_released", (2, 32, 32), 5, fast=fast)
    assert isinstance(model, ReleasedMatrixCapsNet)
    assert sum(p.numel() for p in model.parameters()) == 317_194 - 17 * 32
    caps = 0.1 if fast else 0.3
    for weight, std in (
        (model.stem[1].weight, 0.05),
        (model.primary.poses.weight, 0.5),
        (model.primary.activations.weight, 3.0),
        (model.lower.weight, caps),
        (model.upper.weight, caps),
        (model.head.weight, 0.01),
    ):
        assert isinstance(weight, Tensor)
        assert float(weight.abs().max()) <= 2 * std
        # A normal distribution that is cut at two deviations has 0.88 of its deviation.
        assert float(weight.std()) == pytest.approx(0.88 * std, rel=0.1)
        assert abs(float(weight.mean())) < 0.1 * std
    for layer, beta_u, beta_a in (
        (model.lower, (math.log(0.2505) + PRICE) / 2 if fast else PRICE / 4, -80.0 if fast else -1250.0),
        (model.head, PRICE, -2500.0),
    ):
        routing = cast(EMRouting, layer.routing)
        assert routing.beta_u is not None
        assert routing.beta_a is not None
        assert routing.beta_u.tolist() == pytest.approx([beta_u] * len(routing.beta_u))
        assert routing.beta_a.tolist() == pytest.approx([beta_a] * len(routing.beta_a))
    assert model.lower.routing.inverse_temp == pytest.approx(
        [(4 if fast else 1) * t for t in (1e-3, 1.95e-3, 2.8525e-3)]
    )
    assert model.head.routing.inverse_temp == pytest.approx([t / 4 for t in (1e-3, 1.95e-3, 2.8525e-3)])
    zeros = [p for name, p in model.named_parameters() if "primary" in name and "bias" in name]
    assert zeros == []
    assert model.stem[1].bias.tolist() == pytest.approx([0.1] * 32)


def test_coordinates_are_pixels_from_centre():
    model = create_model("matrix_capsnet_released", **SMALL)
    offsets = model.head.offsets.unflatten(0, (4, 4))
    expected = torch.tensor([-0.08, -0.04, 0.0, 0.04])
    torch.testing.assert_close(offsets[0, :, 0], expected)
    torch.testing.assert_close(offsets[:, 0, 1], expected)
    assert offsets[0, :, 1].unique().tolist() == pytest.approx([-0.08])


GAIN = 10


def by_hand(model: ReleasedMatrixCapsNet, images: np.ndarray, fast: bool, iters: int) -> list[float]:
    """The class activations of one image, from sums over explicit indices in float64."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}
    image = (images - images.mean()) / images.std()
    conv = np.zeros((len(state["stem.1.bias"]), 14, 14))
    for y in range(14):
        for x in range(14):
            patch = image[:, 2 * y : 2 * y + 5, 2 * x : 2 * x + 5]
            conv[:, y, x] = np.maximum((state["stem.1.weight"] * patch).sum((1, 2, 3)) + state["stem.1.bias"], 0)
    poses = np.einsum("oc,cyx->oyx", state["primary.poses.weight"][..., 0, 0], conv).reshape(-1, 4, 4, 14, 14)
    logits = np.einsum("oc,cyx->oyx", state["primary.activations.weight"][..., 0, 0], conv)
    present = 1 / (1 + np.exp(1 - logits))
    final = 0.04 if fast else 0.01
    temps = [GAIN * 2 * final * (1 - 0.95 ** (n + 1)) for n in range(iters)]
    for layer, stride in (("lower", 2), ("upper", 1)):
        types = len(poses)
        weight = state[f"{layer}.weight"].reshape(3, 3, types, -1, 4, 4).transpose(2, 0, 1, 4, 5, 3)
        betas = (state[f"{layer}.routing.beta_u"], state[f"{layer}.routing.beta_a"])
        normalise = em_numpy.fast_normaliser if fast else em_numpy.default_normaliser
        mean, active = em_numpy.route(em_numpy.conv_layer(poses, weight, present, stride, *betas), temps, normalise)
        side = (poses.shape[-1] - 3) // stride + 1
        poses = np.zeros((weight.shape[-1], 4, 4, side, side))
        present = np.zeros((weight.shape[-1], side, side))
        for (row, column, j), value in mean.items():
            poses[j, :, :, row, column] = value.reshape(4, 4)
            present[j, row, column] = 1 / (1 + math.exp(-active[row, column, j]))
    votes, activations = [], []
    for i in range(len(poses)):
        for row in range(4):
            for column in range(4):
                vote = np.stack([(poses[i, :, :, row, column] @ w).reshape(16) for w in state["head.weight"][i]])
                vote[:, 0] += (8 + 4 * column - 16) / 100
                vote[:, 1] += (8 + 4 * row - 16) / 100
                votes.append(vote)
                activations.append(present[i, row, column])
    layer = em_numpy.class_layer(
        np.stack(votes), np.array(activations), state["head.routing.beta_u"], state["head.routing.beta_a"]
    )
    temps = [GAIN * 0.5 * 0.01 * (1 - 0.95 ** (n + 1)) for n in range(iters)]
    _, active = em_numpy.route(layer, temps, em_numpy.softmax)
    return [1 / (1 + math.exp(-active[0, 0, j])) for j in range(5)]


@torch.no_grad()
@pytest.mark.parametrize("iters", [1, 3])
@pytest.mark.parametrize("fast", [False, True])
def test_network_equals_second_derivation(fast, iters):
    torch.manual_seed(1)
    model = cast(
        ReleasedMatrixCapsNet, create_model("matrix_capsnet_released", **SMALL, fast=fast, iters=iters).double()
    )
    # At its initial values all classes have nearly the same activation.
    model.head.weight.mul_(100)
    for layer in (model.lower, model.upper, model.head):
        routing = cast(EMRouting, layer.routing)
        assert routing.beta_a is not None
        assert routing.beta_u is not None
        routing.inverse_temp = tuple(GAIN * value for value in routing.inverse_temp)
        routing.beta_a.zero_()
        routing.beta_u.normal_()
    images = torch.rand(1, 2, 32, 32, dtype=torch.float64)
    got = model(images).activations[0].tolist()
    assert got == pytest.approx(by_hand(model, images[0].numpy(), fast, iters), abs=1e-6)
    assert max(got) - min(got) > 1e-3


def test_loss_is_mean_over_classes():
    capsules = Capsules(torch.zeros(2, 5, 1), torch.tensor([[0.5, 0.4, 0.5, 0.1, 0.6], [0.3, 0.3, 0.3, 0.3, 0.3]]))
    loss = SpreadLoss(growth="released", mean_over_classes=True).eval()
    margin = 0.2 + 0.79 / (1 + math.exp(4))
    short = [margin - 0.1, margin, margin + 0.1] + 4 * [margin]
    expected = sum(value**2 for value in short if value > 0) / 10
    assert float(loss(capsules, torch.tensor([0, 1]))) == pytest.approx(expected)


def test_gradients_reach_every_parameter():
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_released", **SMALL)
    out = model(torch.rand(2, 2, 32, 32))
    SpreadLoss(growth="released", mean_over_classes=True)(out, torch.tensor([0, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name
