from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import load_data, to_float
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.models import AttentionCapsNet, create_model
from torchcaps.nn import LikelihoodLoss


def make(name: str = "attention_capsnet_small", **options: object) -> AttentionCapsNet:
    torch.manual_seed(0)
    model = create_model(name, **options)  # pyright: ignore[reportArgumentType]
    assert isinstance(model, AttentionCapsNet)
    return model


def attention(iters: int) -> dict[str, object]:
    return {"name": "attention", "iters": iters}


def test_parameter_count_of_paper() -> None:
    with torch.device("meta"):
        model = make("attention_capsnet", image_shape=(3, 32, 32))
    # The paper states 1.83 M.
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_828_816
    assert model.lower.weight.shape == (288, 32, 4, 4)
    assert model.head.weight.shape == (5 * 5 * 32, 10, 4, 4)
    assert model.schedule == "concurrent"
    assert model.head.routing.iters == 2  # pyright: ignore[reportAttributeAccessIssue]


def test_class_layer_covers_the_map() -> None:
    for shape in ((1, 13, 40), (2, 21, 20)):
        model = make(image_shape=shape, num_classes=3).eval()
        assert model.trace(torch.rand(2, *shape)).coupling.shape[-1] == 3


@torch.no_grad()
def test_schedules_differ_from_second_iteration() -> None:
    images = torch.rand(2, 1, 20, 20)
    out = {}
    for iters in (1, 2, 3):
        for schedule in ("concurrent", "sequential"):
            model = make(image_shape=(1, 20, 20), routing=attention(iters), schedule=schedule).eval()
            out[iters, schedule] = model(images).poses
    torch.testing.assert_close(out[1, "concurrent"], out[1, "sequential"])
    assert not torch.allclose(out[2, "concurrent"], out[2, "sequential"])
    assert not torch.allclose(out[3, "concurrent"], out[2, "concurrent"])


@torch.no_grad()
def test_concurrent_routing_equals_procedure_2() -> None:
    model = make(image_shape=(1, 20, 20), routing=attention(3)).eval()
    images = torch.rand(2, 1, 20, 20)
    layers = (model.lower, model.upper, model.head)

    def update(place: int, child, parent):
        layer = layers[place]
        return layer.routing.update(child, layer.weight, parent, window=layer.window(child))  # pyright: ignore

    values = [model.primary_capsules(images)]
    for place in range(3):
        values.append(update(place, values[place], None))
    for _ in range(2):
        values = [values[0], *(update(place, values[place], values[place + 1]) for place in range(3))]
    torch.testing.assert_close(model(images).poses, values[3].poses.flatten(1, 3))


@pytest.mark.parametrize("schedule", ["concurrent", "sequential"])
@torch.no_grad()
def test_trace_has_every_iteration(schedule: str) -> None:
    model = make(image_shape=(1, 20, 20), num_classes=4, routing=attention(3), schedule=schedule).eval()
    images = torch.rand(2, 1, 20, 20)
    trace, out = model.trace(images), model(images)
    assert trace.iters == 3
    torch.testing.assert_close(trace.coupling[0], torch.full_like(trace.coupling[0], 0.25))
    torch.testing.assert_close(trace.coupling.sum(-1), torch.ones(trace.coupling.shape[:-1]))
    torch.testing.assert_close(trace.poses[-1], out.poses)
    torch.testing.assert_close(trace.activations[-1], out.activations)
    assert not torch.allclose(trace.coupling[1], trace.coupling[2])


@torch.no_grad()
def test_linear_layer_reads_all_classes() -> None:
    model = make(num_classes=3)
    assert model.read.weight.shape == (1, 16)
    out = model.eval()(torch.rand(2, 1, 28, 28))
    torch.testing.assert_close(out.activations, (out.poses @ model.read.weight[0]).softmax(-1))


def test_other_routers_are_sequential() -> None:
    for routing in ("dynamic", "em"):
        model = make(image_shape=(1, 13, 13), num_classes=3, routing=routing)
        assert model.schedule == "sequential"
        assert model(torch.rand(2, 1, 13, 13)).activations.isfinite().all()


def test_errors_name_the_argument() -> None:
    with raises_about(ConfigError, "schedule:", "DynamicRouting", "got 'concurrent'"):
        make(routing="dynamic", schedule="concurrent")
    with raises_about(ConfigError, "schedule:", "got 'at once'"):
        make(schedule="at once")
    with raises_about(ShapeError, "image_shape:", "at least 13", "got (1, 12, 28)"):
        make(image_shape=(1, 12, 28))


def two_digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_data("digits", "train")
    chosen = ((data.labels == 0) | (data.labels == 1)).nonzero().squeeze(1)[:32]
    return to_float(data.images[chosen][:, :, 4:24, 4:24]), data.labels[chosen]


def test_learns_two_digits() -> None:
    images, labels = two_digits()
    model, loss = make(image_shape=(1, 20, 20), num_classes=2), LikelihoodLoss()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(16):
        optimiser.zero_grad()
        capsules = model(images)
        loss(capsules, labels).backward()
        optimiser.step()
    assert (capsules.activations.argmax(-1) == labels).float().mean() > 0.9  # pyright: ignore
