from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import MatrixCapsNet, create_model
from torchcaps.nn import CapsConv2d, ClassCaps, EMRouting, SpreadLoss
from torchcaps.types import Capsules


def count(name: str, **options) -> int:
    return sum(p.numel() for p in create_model(name, image_shape=(2, 32, 32), num_classes=5, **options).parameters())


def test_parameter_counts():
    assert count("matrix_capsnet") == 317_194
    assert count("matrix_capsnet_small") == 68_754
    assert count("cnn_smallnorb") == 4_253_349


def test_vector_poses():
    matrices, vectors = (
        create_model("matrix_capsnet_small", (1, 17, 17), 3, pose=kind) for kind in ("matrix", "vector")
    )
    for few, many in zip(matrices.modules(), vectors.modules(), strict=True):
        if isinstance(few, CapsConv2d | ClassCaps):
            assert few.weight.shape[2:] == (4, 4)
            assert many.weight.shape == (*few.weight.shape[:2], 16, 16)
    images = torch.rand(2, 1, 17, 17)
    capsules = vectors.eval()(images)
    assert capsules.poses.shape == (2, 3, 16)
    # All sixteen entries mix: unlike those of a matrix, rows of the pose are not separate.
    pose = torch.zeros(1, 3, 3, 16, 16)
    pose[..., 0] = 1
    children = Capsules(pose, torch.ones(1, 3, 3, 16))
    rows = [model.get_submodule("upper")(children).poses[0, 0, 0, :, 4:] for model in (matrices, vectors)]
    assert rows[0].count_nonzero() == 0
    assert rows[1].count_nonzero() > 0


def test_unknown_pose_kind():
    with raises_about(ConfigError, "pose:", "got 'vectors'"):
        create_model("matrix_capsnet_small", (1, 17, 17), 3, pose="vectors")


@pytest.mark.parametrize("shape", [(1, 17, 17), (2, 32, 32), (3, 20, 33)])
def test_any_image_size(shape):
    model = create_model("matrix_capsnet_small", image_shape=shape, num_classes=3)
    capsules = model(torch.rand(1, *shape))
    assert capsules.poses.shape == (1, 3, 16)
    assert model.trace(torch.rand(1, *shape)).activations.shape == (2, 1, 3)


def test_routers_are_not_shared():
    router = EMRouting(iters=2)
    model = create_model("matrix_capsnet_small", image_shape=(1, 20, 20), routing=router)
    own = [module for module in model.modules() if isinstance(module, EMRouting)]
    assert len({id(module) for module in own}) == 3
    assert router not in own


def routers(**options: Any) -> tuple[EMRouting, EMRouting]:
    """The routers of the upper layer and of the classes."""
    model = create_model("matrix_capsnet_small", image_shape=(1, 17, 17), **options)
    assert isinstance(model, MatrixCapsNet)
    assert isinstance(model.upper.routing, EMRouting)
    assert isinstance(model.head.routing, EMRouting)
    return model.upper.routing, model.head.routing


@pytest.mark.parametrize("options", [{}, {"routing": "em"}, {"routing": {"name": "em"}}])
def test_layer_defaults_fill_missing_options(options):
    upper, last = routers(**options)
    assert (upper.iters, upper.sharpness, upper.scale, upper.beta_a_init) == (2, (1.0, 1.0), 1.0, 0.0)
    assert (last.iters, last.sharpness, last.scale, last.beta_a_init) == (2, (1.0, 1.0), 4.0, "floor")


@pytest.mark.parametrize("iters", [1, 2, 3, 5])
def test_defaults_follow_the_number_of_iterations(iters):
    upper, last = routers(routing={"name": "em", "iters": iters})
    soft = max(0, iters - 2)
    assert upper.sharpness == last.sharpness == (1 / 16,) * soft + (1.0,) * (iters - soft)
    assert upper.inverse_temp[-1] == pytest.approx(1 - 0.95**2)
    assert last.inverse_temp[-1] == pytest.approx(4 * (1 - 0.95**2))
    given, classes = routers(routing={"name": "em", "iters": iters, "schedule": "linear"})
    assert (given.inverse_temp[-1], classes.inverse_temp[-1]) == (iters, 4 * iters)


def test_counts_of_iterations_are_checked():
    for bad in (0, "3", True):
        with raises_about(ConfigError, "iters"):
            routers(routing={"name": "em", "iters": bad})


def test_given_options_hold_in_all_layers():
    upper, last = routers(routing={"name": "em", "iters": 5, "sharpness": 0.5, "scale": 2.0})
    assert (upper.iters, upper.sharpness, upper.scale) == (5, 0.5, 2.0)
    assert (last.iters, last.sharpness, last.scale, last.beta_a_init) == (5, 0.5, 2.0, "floor")
    upper, last = routers(routing={"name": "em", "sharpness": 0.5}, class_routing={"name": "em", "iters": 3})
    assert (upper.iters, upper.sharpness) == (2, 0.5)
    assert (last.iters, last.sharpness) == (3, (1 / 16, 1.0, 1.0))


def test_router_objects_keep_their_options():
    for routing in (EMRouting(normalise=False), {"name": "em", "normalise": False}, EMRouting()):
        for router in routers(routing=routing):
            assert (router.iters, router.sharpness, router.scale, router.beta_a_init) == (3, 1.0, 1.0, 0.0)


@torch.no_grad()
def test_classes_start_undecided():
    for iters in (1, 2, 3):
        torch.manual_seed(0)
        model = create_model("matrix_capsnet_small", (2, 32, 32), 5, routing={"name": "em", "iters": iters})
        assert 0.3 < float(model(torch.rand(4, 2, 32, 32)).activations.mean()) < 0.7


def test_coordinates_lie_above_the_floor_of_the_class_layer():
    def offsets(**options: Any) -> torch.Tensor | None:
        model = create_model("matrix_capsnet_small", (2, 32, 32), 5, **options)
        assert isinstance(model, MatrixCapsNet)
        return model.head.offsets

    scaled, plain = offsets(), offsets(coordinates=1.0)
    assert scaled is not None
    assert plain is not None
    torch.testing.assert_close(scaled, 4 * plain)
    floor = routers()[1].variance_floor
    assert bool((plain.var(dim=0) < floor).all())
    assert bool((scaled.var(dim=0) > floor).all())
    assert offsets(coordinates=0) is None
    with raises_about(ConfigError, "coordinates:", "got nan"):
        offsets(coordinates=float("nan"))


def test_class_layer_temperature():
    released = {"name": "em", "schedule": "released"}
    model = create_model(
        "matrix_capsnet_small", image_shape=(1, 17, 17), routing=released, class_routing={**released, "scale": 0.25}
    )
    lower, _, last = (module.inverse_temp for module in model.modules() if isinstance(module, EMRouting))
    assert last == tuple(value / 4 for value in lower)


def test_without_coordinates_and_with_other_routers():
    choices: list[dict[str, Any]] = [{"coordinates": False}, {"competition": "local"}, {"routing": "dynamic"}]
    for options in choices:
        model = create_model("matrix_capsnet_small", image_shape=(1, 17, 17), num_classes=3, **options)
        assert bool(model(torch.rand(2, 1, 17, 17)).activations.isfinite().all())


@torch.no_grad()
def test_no_layer_is_dead_or_saturated_at_the_start():
    torch.manual_seed(0)
    model = create_model("matrix_capsnet_small", image_shape=(1, 28, 28), num_classes=5)
    assert isinstance(model, MatrixCapsNet)
    capsules = model.primary(model.stem(torch.rand(4, 1, 28, 28)))
    for layer in (model.lower, model.upper, model.head):
        capsules = layer(capsules)
        assert float(capsules.activations.min()) > 0.3
        assert float(capsules.activations.max()) < 0.97
        assert float(capsules.poses.std()) > 0.03


def test_learns_two_patterns_with_finite_gradients():
    torch.manual_seed(0)
    images = torch.zeros(16, 1, 20, 20)
    labels = torch.arange(16) % 2
    for n in range(16):
        at = 4 + n % 8
        if labels[n]:
            images[n, 0, at : at + 3] = 1
        else:
            images[n, 0, :, at : at + 3] = 1
    images += 0.05 * torch.rand_like(images)
    model = create_model("matrix_capsnet_small", image_shape=(1, 20, 20), num_classes=2)
    loss, optimiser = SpreadLoss(steps=50), torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(40):
        optimiser.zero_grad()
        loss(model(images), labels).backward()
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)
        optimiser.step()
    activations = model(images).activations
    assert activations.argmax(-1).tolist() == labels.tolist()
    # Nor do they stay near 0.5.
    assert float((activations[:, 1] - activations[:, 0]).abs().mean().detach()) > 0.1


def test_errors_name_the_argument():
    with raises_about(ShapeError, "image_shape:", "at least 17", "got (1, 16, 20)"):
        create_model("matrix_capsnet_small", image_shape=(1, 16, 20))
    with raises_about(ShapeError, "image_shape:", "at least 4", "got (1, 3, 9)"):
        create_model("cnn_smallnorb", image_shape=(1, 3, 9))
