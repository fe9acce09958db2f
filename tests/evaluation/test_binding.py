from __future__ import annotations

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import adjusted_rand_index, by_binding
from torchcaps.evaluation.binding import binding_maps, divide_pixels, shape_pixels, two_groups


@pytest.fixture(scope="module")
def shapes() -> ImageDataset:
    return load_data("overlapping_shapes", "test").subset(range(12))


@pytest.mark.parametrize("seed", range(6))
def test_rand_index_equals_that_of_scikit_learn(seed):
    generator = torch.Generator().manual_seed(seed)
    groups, truth = (torch.randint(0, 2 + seed % 3, (50,), generator=generator) for _ in range(2))
    mixed = torch.where(torch.rand(50, generator=generator) < 0.7, truth, groups)
    for ours in (groups, mixed, truth):
        assert adjusted_rand_index(ours, truth) == pytest.approx(adjusted_rand_score(truth.numpy(), ours.numpy()))


def test_two_clouds_are_two_groups():
    clouds = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    clouds[::3] += 12
    groups = two_groups(clouds)
    assert adjusted_rand_index(groups, (torch.arange(60) % 3 == 0).long()) == 1


@pytest.mark.parametrize("name", ["kuramoto_net", "complex_net", "decoupled_net", "cnn_small"])
def test_maps_are_unit_vectors_of_every_pixel(name, shapes):
    model = create_model(name, num_classes=4).eval()
    maps = binding_maps(model, to_float(shapes.batch(range(2)).images))
    assert maps.shape[-2:] == (28, 28)
    # A phase per channel, as a point of the circle; or one direction.
    length = maps.square().sum(1)
    assert length.max() <= maps.shape[1] / 2 + 1e-3 if name in ("kuramoto_net", "complex_net") else 1 + 1e-3


def test_phases_that_differ_between_shapes_are_found(shapes, monkeypatch):
    batch = shapes.batch(range(12))
    assert batch.sources is not None
    truth = to_float(batch.sources[:, :, 0]).argmax(1)  # [12, 28, 28]
    phases = torch.stack([truth.double().cos(), truth.double().sin()], dim=1)
    monkeypatch.setattr("torchcaps.evaluation.binding.binding_maps", lambda model, images: phases)
    result = by_binding(create_model("kuramoto_net", num_classes=4), shapes)
    found, position = result.rows
    assert found.accuracies[0] == pytest.approx(1)
    assert found.intervals[0] == pytest.approx((1, 1))
    assert -0.1 < position.accuracies[0] < 0.9


def test_decodings_divide_pixels(shapes):
    model = create_model("cnn_matched", num_classes=4).eval()
    batch = shapes.batch(range(3))
    assert batch.sources is not None
    known = [shape_pixels(to_float(pair)) for pair in batch.sources]
    divided = divide_pixels(model, to_float(batch.images), [lit for lit, _ in known])
    assert [len(groups) for groups in divided] == [int(lit.sum()) for lit, _ in known]
    assert by_binding(model, shapes).rows[0].name == "decodings"


def test_needs_the_shapes_alone():
    with raises_about(ConfigError, "data", "'digits'"):
        by_binding(create_model("cnn_small"), load_data("digits", "test").subset(range(4)))
