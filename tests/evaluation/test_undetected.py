from __future__ import annotations

import pytest
import torch

from raising import raises_about
from torchcaps.data import ImageDataset, load_data, to_float
from torchcaps.errors import ConfigError
from torchcaps.evaluation import PROTOCOLS, attack, by_attack, novelty, novelty_of_data
from torchcaps.models import ImageModel, create_model


@pytest.fixture(scope="module")
def known() -> ImageDataset:
    return load_data("digits", "val").subset(range(200))


@pytest.fixture(scope="module")
def trained() -> ImageModel:
    return create_model("capsnet_small", pretrained="mnist_dynamic").eval()


def test_rates_by_hand(trained: ImageModel, digits: ImageDataset, known: ImageDataset) -> None:
    few = digits.subset(range(20))
    result = by_attack(trained, few, known, methods=["fgsm"])
    rows = {row.name: dict(zip(result.columns, row.accuracies, strict=True)) for row in result.rows}
    images = to_float(few.batch(torch.arange(20)).images)
    limits = {
        name: float(score.quantile(0.95, interpolation="higher")) for name, score in _scores(trained, known).items()
    }
    for title, changed in (("no attack", images), ("fgsm", attack(trained, images, few.labels, epsilon=0.3))):
        with torch.no_grad():
            wrong, scores = trained(changed).activations.argmax(dim=1) != few.labels, novelty(trained, changed)
        for name, limit in limits.items():
            pairs = [(bool(miss), float(score) > limit) for miss, score in zip(wrong, scores[name], strict=True)]
            assert rows[f"{title}, {name}"] == pytest.approx(
                {
                    "success": sum(miss for miss, _ in pairs) / 20,
                    "rejected": sum(out for _, out in pairs) / 20,
                    "undetected": sum(miss and not out for miss, out in pairs) / 20,
                }
            )
    assert rows["fgsm, activation"]["success"] > 0.2


def _scores(model: ImageModel, data: ImageDataset) -> dict[str, torch.Tensor]:
    return {name: score.double() for name, score in novelty_of_data(model, data).items()}


def test_thresholds_reject_the_stated_share_of_the_known_images(trained: ImageModel, known: ImageDataset) -> None:
    rows = {row.name: row.accuracies for row in by_attack(trained, known, known, methods=[], rate=0.1).rows}
    assert set(rows) == {f"no attack, {name}" for name in ("activation", "reconstruction", "any score")}
    assert rows["no attack, reconstruction"][1] == pytest.approx(0.1, abs=0.006)
    assert 0.05 <= rows["no attack, any score"][1] <= 0.1


def test_default_attacks_fit_the_network(model: ImageModel, cnn: ImageModel, digits: ImageDataset) -> None:
    few, rest = digits.subset(range(2)), digits.subset(range(10, 30))
    for network, methods in ((model, {"fgsm", "pgd", "reconstructive"}), (cnn, {"fgsm", "pgd"})):
        seen: list[tuple[int, int]] = []
        rows = by_attack(network, few, rest, progress=lambda *at, seen=seen: seen.append(at)).rows
        assert {row.name.split(", ")[0] for row in rows} == {"no attack", *methods}
        assert seen[-1] == (2 * (1 + len(methods)),) * 2


def test_targeted_success_is_the_target(model: ImageModel, digits: ImageDataset) -> None:
    result = by_attack(model, digits, digits, methods=["fgsm"], targeted=True, epsilon=0.0)
    aimed = next(row for row in result.rows if row.name == "fgsm, reconstruction")
    missed = next(row for row in by_attack(model, digits, digits, methods=[]).rows if "reconstruction" in row.name)
    assert aimed.accuracies[0] <= missed.accuracies[0] < 1
    assert "another class" in result.question


class Fake:
    data_name, data_options = "digits", {}

    def __init__(self, model: ImageModel, val: int = 50) -> None:
        self.model, self.val = model, val

    def load_model(self) -> ImageModel:
        return self.model

    def load_data(self, split: str) -> ImageDataset:
        return load_data("digits", split).subset(range(self.val if split == "val" else 30))


def nothing(done: int, total: int) -> None:
    pass


def test_protocol_takes_its_options(model: ImageModel) -> None:
    result = PROTOCOLS["adversarial"](Fake(model), nothing, attacks="fgsm", epsilon=0.1, images=5)
    assert result.rows[0].count == 5
    assert {row.name.split(", ")[0] for row in result.rows} == {"no attack", "fgsm"}
    assert "0.1 per pixel" in result.question
    assert "50 other images" in result.question


@pytest.mark.parametrize(
    ("option", "value"),
    [("images", 0), ("images", "many"), ("epsilon", "big"), ("epsilon", 2.0), ("targeted", "yes"), ("attacks", "cw")],
)
def test_protocol_refuses_bad_options(model: ImageModel, option: str, value: object) -> None:
    with raises_about(ConfigError, {"attacks": "method"}.get(option, option), value):
        PROTOCOLS["adversarial"](Fake(model), nothing, **{option: value})


def test_bad_input_is_refused(model: ImageModel, cnn: ImageModel, digits: ImageDataset) -> None:
    with raises_about(ConfigError, "run", "none", "digits"):
        PROTOCOLS["adversarial"](Fake(model, val=0), nothing)
    with raises_about(ConfigError, "data", "got 0"):
        by_attack(model, digits.subset([]), digits)
    with raises_about(ConfigError, "method", "reconstructive"):
        by_attack(cnn, digits, digits, methods=["reconstructive"])
    with raises_about(ConfigError, "data", 2, "multimnist"):
        by_attack(create_model("cnn_small", (1, 36, 36)), load_data("multimnist", "val", source="digits"), digits)
