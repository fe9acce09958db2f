"""The network of the authors' released code: routers, initial values, and outputs computed in numpy."""

import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

import em_network
from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
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
    router.get_parameter("sigma_biases").copy_(golden(f"s{stride}_sb").flatten())
    router.get_parameter("activation_biases").copy_(golden(f"s{stride}_ab").flatten())
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
        for found, expected in zip(cast(EMRouting, layer.routing).betas(), (beta_u, beta_a), strict=True):
            assert found.tolist() == pytest.approx([expected] * len(found))
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


def by_hand(
    model: ReleasedMatrixCapsNet, images: Tensor, labels: Tensor, *, iters: int, fast: bool
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Class activations, class poses and the gradients of the loss, of the second derivation in float64."""
    variables = {name: value.double().requires_grad_() for name, value in model.variables().items()}
    activations, poses = em_network.network(variables, em_network.standardise(images.double()), iters, fast)
    gradients = torch.autograd.grad(em_network.spread(activations, labels), list(variables.values()))
    return activations, poses, dict(zip(variables, gradients, strict=True))


def compare(model: ReleasedMatrixCapsNet, *, iters: int, fast: bool, tolerance: float) -> None:
    """Compare a network with the second derivation: outputs and the gradient of every variable."""
    images = torch.rand(2, 2, 32, 32, generator=torch.Generator().manual_seed(5)).to(model.head.weight)
    labels = torch.tensor([1, 3])
    activations, poses, gradients = by_hand(model, images, labels, iters=iters, fast=fast)
    out = model(images)
    torch.testing.assert_close(out.activations.double(), activations, rtol=0, atol=1e-6)
    torch.testing.assert_close(out.poses.double(), poses, rtol=0, atol=1e-6)
    SpreadLoss(growth="released", mean_over_classes=True)(out, labels).backward()
    found = model.variables(gradients=True)
    assert found.keys() == gradients.keys()
    for name, expected in gradients.items():
        scale = float(expected.detach().abs().max())
        assert scale > 0, name
        error = float((found[name].double() - expected).abs().max())
        assert error <= tolerance * scale, (name, error / scale)


@pytest.mark.parametrize("iters", [1, 2, 3])
@pytest.mark.parametrize("fast", [False, True])
def test_network_and_gradients_equal_second_derivation(fast: bool, iters: int) -> None:
    torch.manual_seed(1)
    model = create_model("matrix_capsnet_released", **SMALL, fast=fast, iters=iters).double()
    assert isinstance(model, ReleasedMatrixCapsNet)
    # The program counts its mass floor in the cost, too: that is the difference.
    compare(model, iters=iters, fast=fast, tolerance=1e-4)


@torch.no_grad()
def decide(model: ReleasedMatrixCapsNet) -> None:
    """Change the weights as training would: decided classes, and parents and classes that differ."""
    generator = torch.Generator().manual_seed(2)
    for name, value in model.variables().items():
        noise = 0.2 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        changed = value.double() * (1 + noise)
        if name == "capsule2/weights":
            changed = 30 * changed
        if name.endswith("activation_biases"):
            changed = 0.1 * changed
        model.load_variables({**model.variables(), name: changed})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fast", [False, True])
def test_network_with_decided_classes_equals_second_derivation(fast: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    model = create_model("matrix_capsnet_released", **SMALL, fast=fast, iters=3).to(dtype)
    assert isinstance(model, ReleasedMatrixCapsNet)
    decide(model)
    compare(model, iters=3, fast=fast, tolerance=1e-4 if dtype == torch.float32 else 1e-5)


def test_variables_are_loaded_in_their_layouts() -> None:
    torch.manual_seed(0)
    model, other = (create_model("matrix_capsnet_released", **SMALL) for _ in range(2))
    assert isinstance(model, ReleasedMatrixCapsNet)
    assert isinstance(other, ReleasedMatrixCapsNet)
    variables = model.variables()
    shapes = {name: tuple(value.shape) for name, value in variables.items()}
    assert shapes["conv1/weights"] == (5, 5, 2, 6)
    assert shapes["conv_capsule1/weights"] == (1, 1, 6, 48)
    assert shapes["convCaps0/weights"] == (3, 3, 3, 4, 12)
    assert shapes["convCaps0/sigma_biases"] == (1, 1, 3, 1, 1, 1, 1, 1)
    assert shapes["capsule2/weights"] == (3, 4, 20)
    assert shapes["capsule2/activation_biases"] == (1, 1, 5, 1, 1, 1)
    # Child type 2 at kernel row 1 and column 0, its entry in row 3 and column 2 of the matrix, for parent type 1.
    assert variables["convCaps1/weights"][2, 1, 0, 3, 2 * 3 + 1] == model.upper.weight[(1 * 3 + 0) * 3 + 2, 1, 3, 2]
    assert variables["capsule2/weights"][2, 3, 2 * 5 + 4] == model.head.weight[2, 4, 3, 2]
    other.load_variables({name: value.numpy() for name, value in variables.items()})
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_unfit_variables_are_refused() -> None:
    model = create_model("matrix_capsnet_released", **SMALL)
    assert isinstance(model, ReleasedMatrixCapsNet)
    variables = model.variables()
    with raises_about(ConfigError, "variables", "missing: conv1/biases", "unknown: conv1/bias"):
        model.load_variables({("conv1/bias" if name == "conv1/biases" else name): v for name, v in variables.items()})
    with raises_about(ShapeError, "variables", "conv1/biases", (6,), (7,)):
        model.load_variables({**variables, "conv1/biases": np.zeros(7)})
    with raises_about(ConfigError, "variables", "conv1/biases", "finite"):
        model.load_variables({**variables, "conv1/biases": torch.full((6,), torch.nan)})
    with raises_about(ConfigError, "gradients", "backward"):
        model.variables(gradients=True)


@torch.no_grad()
def test_images_that_are_standardised_already() -> None:
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_released", **SMALL, iters=1)
    plain = create_model("matrix_capsnet_released", **SMALL, iters=1, standardize=False)
    plain.load_state_dict(model.state_dict())
    images = torch.rand(2, 2, 32, 32)
    for one, two in zip(model(images), plain(em_network.standardise(images)), strict=True):
        torch.testing.assert_close(one, two)
    assert not torch.allclose(model(images).poses, plain(images).poses)


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
