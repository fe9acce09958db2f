from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from torch import Tensor, nn

from raising import raises_about
from torchcaps import create_model
from torchcaps.data import ImageDataset, InMemoryDataset, load_data, to_float
from torchcaps.data.transforms import affine, shift
from torchcaps.errors import ConfigError
from torchcaps.evaluation import Factor, by_pose, class_features, equivariance, known_factors, with_known_factors
from torchcaps.evaluation.factors import FACTORS
from torchcaps.evaluation.pose import fit_half, probe
from torchcaps.evaluation.ridge import PENALTIES
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


def turned(count: int = 240, **meta: Tensor) -> InMemoryDataset:
    labels = torch.arange(count) % 3
    return InMemoryDataset("coil20", "test", torch.zeros(count, 1, 4, 4, dtype=torch.uint8), labels, tuple("abc"),
                           "made up", {"azimuth": 5 * (torch.arange(count) // 3) % 360, **meta})  # fmt: skip


class Reads(ImageModel):
    """Class poses are position and size of the light, times a matrix of each class; activations do not depend on it."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10)
        torch.manual_seed(0)
        self.mix = torch.nn.Parameter(torch.randn(10, 3, 6))

    def forward(self, images: Tensor) -> Capsules:
        weight = images[:, 0] / images[:, 0].sum((1, 2)).clamp(min=1e-6)[:, None, None]
        at = torch.arange(28.0)
        found = [weight.sum(2) @ at, weight.sum(1) @ at, images[:, 0].mean((1, 2))]
        poses = torch.einsum("bk,jkd->bjd", torch.stack(found, dim=1), self.mix)
        return Capsules(poses, torch.full(poses.shape[:2], 0.7))


def test_pose_with_a_known_answer() -> None:
    """Poses that are a matrix times (sin, cos) predict the angle perfectly; noise and constants do not."""
    data = turned()
    angle = torch.deg2rad(data.meta["azimuth"].double())
    poses = torch.stack([angle.sin(), angle.cos()], dim=1) @ torch.tensor([[1.0, 2, 0], [0, 1, -1]]).double()
    factor = FACTORS["coil20"][0]
    half = fit_half(data)
    r2, (low, high) = probe(poses, data, factor, half)
    assert r2 == pytest.approx(1, abs=1e-4)
    assert 0.999 < low <= r2 <= high
    noise = torch.randn(240, 3, generator=torch.Generator().manual_seed(0)).double()
    r2, (low, high) = probe(noise, data, factor, half)
    assert -0.5 < low < r2 < high
    assert r2 < 0.1
    assert probe(torch.ones(240, 1).double(), data, factor, half)[0] == pytest.approx(0, abs=0.05)


def test_same_r2_as_scikit_learn() -> None:
    data = turned(instance=torch.arange(240) // 3 % 4)
    random = np.random.default_rng(1)
    factor = Factor("azimuth", "azimuth")
    targets = factor.targets(data)[0].numpy()
    features = targets * random.normal(size=(1, 5)) / 100 + random.normal(size=(240, 5))
    half, residual, total = fit_half(data).numpy(), 0.0, 0.0
    for label in range(3):
        here = data.labels.numpy() == label
        fit, score = here & half, here & ~half
        x, y = features - features[fit].mean(axis=0), targets
        x = x / np.sqrt((x[fit] ** 2).mean())
        predicted = RidgeCV(alphas=PENALTIES).fit(x[fit], y[fit]).predict(x[score])
        spread = ((y[score] - y[score].mean()) ** 2).sum()
        residual += (1 - r2_score(y[score], predicted)) * spread
        total += spread
    assert probe(torch.from_numpy(features), data, factor, torch.from_numpy(half))[0] == pytest.approx(
        1 - residual / total
    )


def test_halves_share_no_object() -> None:
    instance = torch.arange(240) // 3 % 5
    data = turned(instance=instance)
    half = fit_half(data)
    for label in range(3):
        here = data.labels == label
        assert not set(instance[here & half].tolist()) & set(instance[here & ~half].tolist())
    assert 0 < half.sum() < 240


def test_targets_of_each_kind() -> None:
    data = turned(6, lighting=torch.tensor([0, 2, 2, 5, -1, 0]), symmetry=torch.tensor([1, 2, 4, 1, 2, 4]))
    one_hot, known = Factor("lighting", "lighting", "category").targets(data)
    assert known.tolist() == [True, True, True, True, False, True]
    assert one_hot[known].tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    angles, _ = Factor("azimuth", "azimuth", "angle", symmetry="symmetry").targets(data)
    assert angles[3].tolist() == pytest.approx([math.sin(math.radians(5)), math.cos(math.radians(5))])
    assert angles[4].tolist() == pytest.approx([math.sin(math.radians(10)), math.cos(math.radians(10))])
    assert Factor("azimuth", "azimuth", "angle", classes=("b",)).targets(data)[1].tolist() == [
        False, True, False, False, True, False,
    ]  # fmt: skip


def test_transformations_are_known(digits: ImageDataset) -> None:
    known = with_known_factors(digits)
    assert [factor.name for factor in known_factors(known)] == ["angle", "scale", "shear", "shift right", "shift down"]
    meta = known.meta
    amounts = (meta["degrees"].deg2rad().float(), meta["factor"].float(), meta["slope"].float())
    again = shift(affine(to_float(digits.images), *amounts), meta["down"], meta["right"])
    assert torch.equal((255 * again).round().to(torch.uint8), known.images)
    assert meta["degrees"].abs().max() > 20
    assert set(meta["right"].tolist()) == set(range(-3, 4))


def test_protocol_finds_position_in_poses() -> None:
    result = by_pose(Reads(), load_data("digits", "test"))
    found = dict(zip(result.columns, result.rows[0].accuracies, strict=True))
    assert found["shift right"] > 0.9
    assert found["shift down"] > 0.9
    assert found["shear"] < 0.3
    # Activations are constant.
    assert max(map(abs, result.rows[1].accuracies)) < 0.1
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    low, high = document["rows"][0]["intervals"]["shift right"]
    assert low < found["shift right"] < high
    assert document["curves"][0]["lines"]["activation, relative"] == pytest.approx([1.0] * 7)


def test_curves_by_hand(digits: ImageDataset) -> None:
    model, few = Reads(), digits.subset(range(5))
    curve = {each.name: each for each in equivariance(model, few)}["shift"]
    moved = shift(to_float(few.images), torch.zeros(5, dtype=torch.long), torch.full((5,), 3))
    with torch.no_grad():
        before, after = (model(images).poses[range(5), few.labels] for images in (to_float(few.images), moved))
    expected = ((after - before).norm(dim=1) / before.norm(dim=1)).mean().item()
    assert curve.lines["change of the pose"][-1] == pytest.approx(expected, rel=1e-5)
    assert curve.lines["change of the pose"][3] == 0
    assert curve.at == (-3, -2, -1, 0, 1, 2, 3)


@pytest.mark.parametrize(("name", "options"), [("cnn_small", {}), ("backbone_linear", {"backbone": "resnet8_thin"})])
def test_features_of_a_cnn_give_its_scores(name: str, options: dict[str, Any], digits: ImageDataset) -> None:
    model = create_model(name, **options).eval()
    found = class_features(model, digits.subset(range(6)))
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        scores = linear(found["features before the scores"].float())
    expected = scores.gather(1, digits.labels[:6, None])
    assert torch.allclose(expected.double(), found["score of the class"], atol=1e-5)


def test_class_without_images_is_named(model: ImageModel) -> None:
    digits = load_data("digits", "test")
    labels = digits.labels[:120].tolist()
    # No image of a 7, one of a 3.
    few = [place for place, label in enumerate(labels) if label not in (3, 7)] + [labels.index(3)]
    kept = digits.subset(few)
    result = by_pose(model, kept)
    assert result.notes == ("Not measured, with fewer than two test images to fit on or to score: 3, 7.",)
    assert result.to_json()["notes"] == list(result.notes)
    scored = sum(int((kept.labels == label).sum()) // 2 for label in range(10) if label not in (3, 7))
    assert {row.count for row in result.rows} == {scored}


def test_dead_class_gives_no_nan(digits: ImageDataset) -> None:
    network = create_model("cnn_small")
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    result = by_pose(network, digits)
    assert [list(curve.lines) for curve in result.curves] == [["change of the features"]] * 3
    assert "score, relative" in result.notes[-1]
    json.dumps(result.to_json(), allow_nan=False)
    nn.init.constant_(last.weight, torch.nan)
    with raises_about(ConfigError, "model", "NaN", digits.name):
        by_pose(network, digits)


def test_signals_have_no_pose() -> None:
    signals = InMemoryDataset("beats", "test", torch.zeros(8, 1, 40), torch.arange(8) % 2, ("a", "b"), "made up")
    with raises_about(ConfigError, "data", "(1, 40)", "beats"):
        by_pose(create_model("capsnet_1d", (1, 40), 2), signals)


def test_too_few_images(digits: ImageDataset) -> None:
    with raises_about(ConfigError, "data", "digits"):
        by_pose(Reads(), digits.subset([0]))
    with raises_about(ConfigError, "run", "multimnist"):
        by_pose(Reads(), load_data("multimnist", "test", source="digits").subset(range(4)))
