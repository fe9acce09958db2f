import pytest
import torch

from raising import raises_about
from torchcaps import create_model, load_data
from torchcaps.data import InMemoryDataset
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


def test_values_out_of_range_are_refused():
    signals = torch.tensor([-1.5, 2.0]).expand(2, 1, 4, 2).repeat(1, 1, 1, 2)
    with raises_about(ConfigError, "images", "-1.5 to 2"):
        attack(Brightness(), signals, torch.zeros(2, dtype=torch.int64), epsilon=0.1)


@pytest.fixture(scope="module")
def digits():
    return load_data("digits", "test").subset(range(24))


@pytest.mark.parametrize("method", ["fgsm", "bim", "pgd"])
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


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, method) for name in ("capsnet_small", "cnn_small") for method in ("fgsm", "bim", "pgd")),
        ("capsnet_small", "reconstructive"),
    ],
)
def test_perturbation_respects_epsilon_and_range(digits, method, name):
    images, labels = digits.images[:6].float() / 255, digits.labels[:6]
    changed = attack(create_model(name).eval(), images, labels, epsilon=0.1, method=method)
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
    with raises_about(ConfigError, "method", "deepfool"):
        evaluate_attack(model, digits, method="deepfool")  # pyright: ignore[reportArgumentType]
    with raises_about(ConfigError, "epsilon", 2):
        evaluate_attack(model, digits, epsilons=(2,))
    with raises_about(ConfigError, "data", "digits"):
        evaluate_attack(model, digits.subset([]))


def test_pairs_are_refused():
    pairs = load_data("multimnist", "val", source="digits")
    with raises_about(ConfigError, "data", 2, "multimnist"):
        evaluate_attack(create_model("cnn_small", (1, 36, 36)), pairs)


class Drawn(Brightness):
    """`Brightness` with a decoder that draws every image as a constant of the brightness 0.6."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = torch.nn.Identity()

    def decode(self, capsules, labels=None):
        return torch.full((len(capsules.activations), 1, 4, 4), 0.6)


def test_reconstructive_steps_by_hand():
    # Each step moves a pixel by c/2 away from its class, and by c/2 towards its reconstruction.
    pixels = torch.tensor([0.3, 0.9]).view(2, 1, 1, 1).expand(2, 1, 4, 4)
    changed = attack(Drawn(), pixels, torch.zeros(2, dtype=torch.int64), epsilon=0.2, method="reconstructive")
    # 0.3 moves up in both stages, to the edge; 0.9 moves up and down by the same amount, and stays.
    torch.testing.assert_close(changed[0], torch.full((1, 4, 4), 0.5))
    torch.testing.assert_close(changed[1], torch.full((1, 4, 4), 0.9), atol=0.0051, rtol=0)
    plain = attack(Drawn(), pixels, torch.zeros(2, dtype=torch.int64), epsilon=0.2, method="pgd")
    torch.testing.assert_close(plain[1], torch.full((1, 4, 4), 1.0))


def test_reconstructive_attack_lowers_the_distance_of_the_reconstruction(digits):
    model = create_model("capsnet_small", pretrained="mnist_dynamic").eval()
    images, labels = digits.images[:8].float() / 255, digits.labels[:8]
    found = {}
    for method in ("pgd", "reconstructive"):
        changed = attack(model, images, labels, epsilon=0.3, method=method)
        with torch.no_grad():
            found[method] = float((model.decode(model(changed)) - changed).square().mean())
    assert found["reconstructive"] < 0.8 * found["pgd"]


def test_reconstructive_attack_needs_a_decoder(digits):
    with raises_about(ConfigError, "method", "reconstructive"):
        attack(
            create_model("cnn_small"), digits.images.float() / 255, digits.labels, epsilon=0.1, method="reconstructive"
        )


def test_targets_of_one_class_are_refused(digits):
    alone = InMemoryDataset("one", "test", digits.images, torch.zeros_like(digits.labels), ("a",), "tests")
    with raises_about(ConfigError, "data", 1):
        evaluate_attack(create_model("cnn_small", num_classes=1), alone, targeted=True, epsilons=(0.1,))
