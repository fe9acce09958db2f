"""Properties of every registered model."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from model_shapes import by_name, fit_shape
from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError, UnknownNameError
from torchcaps.models import MODELS, AttentionCapsNet, ImageModel, create_model, list_models, model_rank, register_model
from torchcaps.models._layers import conv_size, make_decoder
from torchcaps.nn import LOSSES, DeconvDecoder, MLPDecoder, ReconstructionLoss

NAMES = list_models()
SHAPES = [(1, 28, 28), (3, 32, 32), (1, 40, 40), (2, 48, 48), (1, 29, 37), (5, 64, 28)]


def loss_of(model: ImageModel, images: Tensor, labels: Tensor) -> Tensor:
    if not model.is_classifier:
        return model.objective(images, torch.Generator().manual_seed(0))
    capsules = model(images)
    loss = LOSSES[model.default_loss]().eval()(capsules, labels)
    if model.decoder is not None:
        loss = loss + ReconstructionLoss()(model.decode(capsules, labels), images)
    return loss


# On the meta device shapes are computed and numbers are not, so that large networks are cheap to check.
@pytest.mark.parametrize("classes", [1, 2, 7])
@pytest.mark.parametrize("shape", SHAPES)
@by_name
def test_image_shapes_and_class_counts(name: str, shape: tuple[int, ...], classes: int) -> None:
    shape = fit_shape(name, shape)
    with torch.device("meta"):
        model = create_model(name, image_shape=shape, num_classes=classes)
        images = torch.zeros(3, *shape)
    assert (model.image_shape, model.num_classes) == (shape, classes)
    capsules = model(images)
    assert isinstance(capsules, tc.Capsules)
    assert capsules.poses.dim() == 3
    assert capsules.activations.shape == capsules.poses.shape[:2]
    assert capsules.poses.shape[0] == 3
    assert capsules.poses.shape[1] == classes or not model.is_classifier
    if model.decoder is not None:
        assert model.decode(capsules, torch.zeros(3, dtype=torch.long, device="meta")).shape == images.shape


@pytest.mark.parametrize("classes", [1, 4])
@by_name
def test_every_parameter_gets_a_gradient(name: str, classes: int) -> None:
    torch.manual_seed(0)
    shape = fit_shape(name, (2, 21, 20))
    model = create_model(name, image_shape=shape, num_classes=classes)
    loss = loss_of(model, torch.rand(4, *shape), torch.arange(4) % classes)
    loss.backward()
    assert loss.isfinite()
    # A loss that compares classes is constant for a single class, and a margin that is kept has no gradient.
    silent = classes == 1 and (model.default_loss != "margin" or float(loss.detach()) == 0)
    # Agreement has no effect where there is one parent.
    alone = ("routing.predict", "routing.score_bias") if classes == 1 else ()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        unheard = silent or any(each in parameter_name for each in alone)
        assert unheard or parameter.grad.count_nonzero() > 0, parameter_name


@by_name
def test_samples_are_independent(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20)), num_classes=3).eval()
    images = torch.rand(3, *fit_shape(name, (1, 20, 20)))
    with torch.no_grad():
        together = model(images)
        for sample in range(3):
            alone = model(images[sample : sample + 1])
            torch.testing.assert_close(alone.poses, together.poses[sample : sample + 1])
            torch.testing.assert_close(alone.activations, together.activations[sample : sample + 1])


@by_name
def test_activations_of_black_and_white_images(name: str) -> None:
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20)), num_classes=3)
    for mode in (True, False):
        model.train(mode)
        for value in (0.0, 1.0):
            activations = model(torch.full((1, *model.image_shape), value)).activations
            assert activations.min() >= 0
            assert activations.max() <= 1


@by_name
def test_state_dict_round_trip(name: str) -> None:
    first, second = (
        create_model(name, image_shape=fit_shape(name, (1, 20, 20)), num_classes=3).eval() for _ in range(2)
    )
    images = torch.rand(2, *fit_shape(name, (1, 20, 20)))
    with torch.no_grad():
        assert not torch.equal(first(images).poses, second(images).poses)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(images).poses, second(images).poses)


@by_name
def test_one_step_lowers_the_loss(name: str) -> None:
    torch.manual_seed(0)
    # A small step in double precision: a loss of any scale falls, if by less than a single rounding.
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20)), num_classes=2).eval().double()
    images, labels = torch.rand(4, *fit_shape(name, (1, 20, 20))).double(), torch.tensor([0, 1, 0, 1])
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    before = loss_of(model, images, labels)
    before.backward()
    optimiser.step()
    assert loss_of(model, images, labels) < before


@by_name
def test_trace(name: str) -> None:
    # In double precision: routing several times enlarges rounding errors.
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20)), num_classes=3).double().eval()
    images = torch.rand(2, *fit_shape(name, (1, 20, 20)), dtype=torch.float64)
    if type(model).trace is ImageModel.trace:
        with raises_about(ConfigError, "trace:", f"got {type(model).__name__}"):
            model.trace(images)
    else:
        torch.testing.assert_close(model.trace(images).routed.poses, model(images).poses)


@by_name
def test_stages(name: str) -> None:
    torch.manual_seed(0)
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 24)), num_classes=3).eval()
    images = torch.rand(2, *fit_shape(name, (1, 20, 24)))
    with torch.no_grad():
        maps, children, classes = model.stem(images), model.features(images), model(images)
        assert len(maps) == 2
        # With a concurrent schedule a call of the head is one iteration of several.
        if not (isinstance(model, AttentionCapsNet) and model.schedule == "concurrent"):
            torch.testing.assert_close(model.head(children).flatten().poses, classes.poses)
        if model.class_router is None:
            assert type(model).trace is ImageModel.trace
            assert model.class_bias is None
            return
        votes = model.trace(images).votes
    assert children.flatten().poses.shape[:2] == votes.shape[:2]
    assert model.class_bias is None or model.class_bias.shape == classes.poses.shape[1:]


@by_name
def test_grid(name: str) -> None:
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 27)), num_classes=3).eval()
    children, grid = model.features(torch.rand(1, *fit_shape(name, (1, 20, 27)))), model.grid()
    if model.class_router is None or children.poses.dim() == 3 or model_rank(name) != 2:
        assert grid is None
        return
    assert grid is not None
    assert tuple(map(len, grid)) == children.poses.shape[1:3]
    for axis in grid:
        assert list(axis) == sorted(axis)
        assert axis[0] > 0
        assert axis[-1] < 1
        # The positions are centred, up to what a stride leaves over at the end.
        assert abs(axis[0] - (1 - axis[-1])) < 0.2


def test_base_class_has_no_features() -> None:
    with pytest.raises(NotImplementedError, match="ImageModel"):
        ImageModel((1, 8, 8), 2).features(torch.zeros(1, 1, 8, 8))


@by_name
def test_default_loss_is_registered(name: str) -> None:
    assert create_model(name, image_shape=fit_shape(name, (1, 20, 20))).default_loss in LOSSES


def refusal(name: str, shape: tuple[int, ...]) -> str:
    """Return the message of the ShapeError for images of this shape, or "" if the model accepts them."""
    try:
        with torch.device("meta"):
            assert len(create_model(name, shape, 2)(torch.zeros(2, *shape)).activations) == 2
    except ShapeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 8, 40), (1, 40, 8), (3, 16, 16)])
@by_name
def test_small_images(name: str, shape: tuple[int, ...]) -> None:
    shape = fit_shape(name, shape)
    message = refusal(name, shape)
    if message:
        found = re.match(r"image_shape: .* at least (\d+), got \((.*?)\)", message)
        assert found is not None, message
        assert found[2] == ", ".join(map(str, shape))
        least = int(found[1])
        enough = (least,) * model_rank(name)
        assert refusal(name, (shape[0], *enough)) == ""
        for axis in range(len(enough)):
            less = [side - (axis == other) for other, side in enumerate(enough)]
            assert refusal(name, (shape[0], *less)) != ""


@pytest.mark.parametrize("shape", [(2, 1, 20, 21), (2, 3, 20, 20), (1, 20, 20), (20, 20)])
@by_name
def test_images_of_another_shape(name: str, shape: tuple[int, ...]) -> None:
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20))).eval()
    if model.any_size and shape == (2, 1, 20, 21):
        assert len(model(torch.zeros(shape)).activations) == 2
        return
    expected = "[B, 1, H, W]" if model.any_size else f"[B, {', '.join(map(str, model.image_shape))}]"
    with raises_about(ShapeError, "images:", expected, f"got {shape}"):
        model(torch.zeros(shape))


@by_name
def test_min_size(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name, image_shape=fit_shape(name, (1, 20, 20))).eval()
        if not model.any_size:
            return
        for height, width in ((model.min_size, 33), (33, model.min_size)):
            assert model(torch.zeros(2, 1, height, width)).activations.shape == (2, 10)
        with raises_about(ShapeError, "images:", f"at least {model.min_size}"):
            model(torch.zeros(2, 1, 33, model.min_size - 1))


@by_name
def test_objective(name: str) -> None:
    model = create_model(name, image_shape=fit_shape(name, (1, 20, 20)))
    if model.is_classifier:
        with raises_about(ConfigError, "objective:", f"got {type(model).__name__}"):
            model.objective(torch.zeros(1, *model.image_shape))
    else:
        # The same draws give the same value, so that epochs can be compared.
        images = torch.rand(2, *fit_shape(name, (1, 20, 20)))
        first, second = (model.objective(images, torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("shape", [(28,), (1, 1, 28, 28, 28), (0, 28, 28), (1, -1, 28)])
@by_name
def test_invalid_image_shape(name: str, shape: tuple[int, ...]) -> None:
    sides = {1: "(channels, length)", 2: "(channels, height, width)", 3: "(channels, depth, height, width)"}
    with raises_about(ShapeError, "image_shape:", sides[model_rank(name)], f"got {shape}"):
        create_model(name, image_shape=shape)


@by_name
def test_no_classes(name: str) -> None:
    with raises_about(ConfigError, "num_classes:", "from 1 to", "got 0"):
        create_model(name, num_classes=0)


def test_base_class_checks_sizes() -> None:
    with raises_about(ShapeError, "image_shape:", "got (28, 28)"):
        ImageModel((28, 28), 10)  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "num_classes:", "got 0"):
        ImageModel((1, 28, 28), 0)


@by_name
def test_unknown_option(name: str) -> None:
    with raises_about(ConfigError, "unknown option 'droput'", f"model '{name}'"):
        create_model(name, droput=0.1)


def test_unknown_model() -> None:
    with raises_about(UnknownNameError, "unknown model 'capsnett'", "capsnet"):
        create_model("capsnett")


def test_decode_without_decoder() -> None:
    model = create_model("cnn_small")
    with raises_about(ConfigError, "decode:", "got CNN without one"):
        model.decode(model(torch.zeros(1, 1, 28, 28)))


def test_decode_with_and_without_labels() -> None:
    torch.manual_seed(0)
    model = create_model("capsnet_small", num_classes=3).eval()
    with torch.no_grad():
        capsules = model(torch.rand(2, 1, 28, 28))
        winner = capsules.activations.argmax(-1)
        torch.testing.assert_close(model.decode(capsules), model.decode(capsules, winner))
        assert not torch.allclose(model.decode(capsules), model.decode(capsules, (winner + 1) % 3))


def test_list_models() -> None:
    assert {"capsnet", "capsnet_small", "cnn_baseline", "cnn_small"} <= set(NAMES)
    assert list_models("cnn_*") == [name for name in NAMES if name.startswith("cnn_")]


def test_register_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_items", dict(MODELS._items))

    @register_model("mine")
    def mine(image_shape: tuple[int, int, int], num_classes: int, *, depth: int = 1) -> ImageModel:
        model = ImageModel(image_shape, num_classes)
        model.default_loss = f"depth {depth}"
        return model

    assert "mine" in list_models()
    assert create_model("mine", depth=3).default_loss == "depth 3"


def test_make_decoder() -> None:
    assert make_decoder(None, 10, 16, (1, 28, 28)) is None
    assert make_decoder("none", 10, 16, (1, 28, 28)) is None
    assert isinstance(make_decoder("mlp", 10, 16, (1, 28, 28)), MLPDecoder)
    assert isinstance(make_decoder("deconv", 10, 16, (1, 28, 28), channels=(4, 4, 4)), DeconvDecoder)
    with raises_about(UnknownNameError, "unknown decoder 'deconf'", "deconv"):
        make_decoder("deconf", 10, 16, (1, 28, 28))


@pytest.mark.parametrize(("size", "kernel", "stride"), [(28, 9, 1), (20, 9, 2), (21, 5, 2), (5, 5, 3), (12, 5, 3)])
def test_conv_size(size: int, kernel: int, stride: int) -> None:
    assert conv_size(size, kernel, stride) == torch.nn.Conv1d(1, 1, kernel, stride)(torch.zeros(1, 1, size)).shape[-1]


def test_conv_size_of_too_large_kernel() -> None:
    assert conv_size(4, 5, 1) == 0
    assert conv_size(3, 9, 2) < 1
