import pytest
import torch

from raising import raises_about
from torchcaps import create_model, load_data
from torchcaps.errors import ConfigError
from torchcaps.evaluation import attack, evaluate_attack
from torchcaps.models import ImageModel
from torchcaps.types import Capsules


class Brightness(ImageModel):
    """Two classes by the mean of the pixels: dark and bright."""

    def __init__(self) -> None:
        super().__init__((1, 4, 4), 2)
        self.gain = torch.nn.Parameter(torch.tensor(5.0))

    def forward(self, images):
        mean = images.mean(dim=(1, 2, 3))
        scores = torch.stack([-self.gain * (mean - 0.5), self.gain * (mean - 0.5)], dim=1)
        return Capsules(scores.unsqueeze(-1), scores.softmax(dim=-1))


@pytest.fixture(scope="module")
def digits():
    return load_data("digits", "test").subset(range(24))


@pytest.mark.parametrize("method", ["fgsm", "bim"])
def test_direction_is_sign_of_gradient(method):
    dark = torch.full((3, 1, 4, 4), 0.3)
    changed = attack(Brightness(), dark, torch.zeros(3, dtype=torch.int64), epsilon=0.25, method=method)
    torch.testing.assert_close(changed, dark + 0.25)
    towards = attack(
        Brightness(),
        dark,
        torch.zeros(3, dtype=torch.int64),
        epsilon=0.25,
        method=method,
        targets=torch.zeros(3, dtype=torch.int64),
    )
    torch.testing.assert_close(towards, dark - 0.25)


@pytest.mark.parametrize("method", ["fgsm", "bim"])
@pytest.mark.parametrize("name", ["capsnet_small", "cnn_small"])
def test_perturbation_respects_epsilon_and_range(digits, method, name):
    images = digits.images.float() / 255
    changed = attack(create_model(name).eval(), images, digits.labels, epsilon=0.1, method=method)
    assert float((changed - images).abs().max()) <= 0.1 + 1e-6
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1
    assert not torch.equal(changed, images)


def test_iterated_attack_recomputes_gradient(digits):
    torch.manual_seed(0)
    model = create_model("cnn_small").eval()
    images = digits.images.float() / 255
    once = attack(model, images, digits.labels, epsilon=0.3)
    often = attack(model, images, digits.labels, epsilon=0.3, method="bim")
    likely = [model(changed).activations.gather(1, digits.labels[:, None]).log().mean() for changed in (once, often)]
    assert not torch.equal(once, often)
    assert likely[1] < likely[0]


def test_zero_epsilon_gives_clean_accuracy(digits):
    model = create_model("cnn_small")
    plain = evaluate_attack(model, digits, epsilons=(0.0,))
    model.eval()
    predicted = model(digits.images.float() / 255).activations.argmax(dim=-1)
    assert plain.accuracy == (int((predicted == digits.labels).sum()) / len(digits),)
    assert plain.attack_success_rate is None


def test_targets_are_other_classes(digits):
    torch.manual_seed(0)
    model = create_model("cnn_small").train()
    result = evaluate_attack(model, digits, method="bim", targeted=True, epsilons=(0.0, 1.0), batch_size=10)
    assert result.attack_success_rate is not None
    assert result.attack_success_rate[1] > result.attack_success_rate[0]
    assert all(a + f <= 1 for a, f in zip(result.accuracy, result.attack_success_rate, strict=True))
    assert model.training
    assert result.to_json()["epsilons"] == (0.0, 1.0)


def test_progress_counts_images(digits):
    seen = []
    evaluate_attack(
        create_model("cnn_small"), digits, epsilons=(0.0,), batch_size=10, progress=lambda *at: seen.append(at)
    )
    assert seen == [(10, 24), (20, 24), (24, 24)]


def test_errors_name_the_argument(digits):
    model = create_model("cnn_small")
    with raises_about(ConfigError, "method", "pgd"):
        evaluate_attack(model, digits, method="pgd")  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "epsilon", 2):
        evaluate_attack(model, digits, epsilons=(2,))
    with raises_about(ConfigError, "data", "digits"):
        evaluate_attack(model, digits.subset([]))


def test_pairs_are_refused():
    pairs = load_data("multimnist", "val", source="digits")
    with raises_about(ConfigError, "data", 2, "multimnist"):
        evaluate_attack(create_model("cnn_small", (1, 36, 36)), pairs)
