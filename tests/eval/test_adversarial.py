import pytest
import torch

from torchcaps import create_model, load_data
from torchcaps.errors import ConfigError
from torchcaps.eval import attack, withstand
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
def test_the_direction_is_that_of_the_gradient(method):
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
def test_a_change_keeps_to_its_size_and_to_images(digits, method, name):
    images = digits.images.float() / 255
    changed = attack(create_model(name).eval(), images, digits.labels, epsilon=0.1, method=method)
    assert float((changed - images).abs().max()) <= 0.1 + 1e-6
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1
    assert not torch.equal(changed, images)


def test_steps_of_the_iterated_attack_look_anew(digits):
    torch.manual_seed(0)
    model = create_model("cnn_small").eval()
    images = digits.images.float() / 255
    once = attack(model, images, digits.labels, epsilon=0.3)
    often = attack(model, images, digits.labels, epsilon=0.3, method="bim")
    likely = [model(changed).activations.gather(1, digits.labels[:, None]).log().mean() for changed in (once, often)]
    assert not torch.equal(once, often)
    assert likely[1] < likely[0]


def test_without_a_change_it_is_the_accuracy(digits):
    model = create_model("cnn_small")
    plain = withstand(model, digits, epsilons=(0.0,))
    model.eval()
    said = model(digits.images.float() / 255).activations.argmax(dim=-1)
    assert plain.accuracy == (int((said == digits.labels).sum()) / len(digits),)
    assert plain.fooled is None


def test_targets_are_other_classes_and_are_reached(digits):
    torch.manual_seed(0)
    model = create_model("cnn_small").train()
    result = withstand(model, digits, method="bim", targeted=True, epsilons=(0.0, 1.0), batch_size=10)
    assert result.fooled is not None
    assert result.fooled[1] > result.fooled[0]
    assert all(a + f <= 1 for a, f in zip(result.accuracy, result.fooled, strict=True))
    assert model.training
    assert result.to_json()["epsilons"] == (0.0, 1.0)


def test_progress_counts_images(digits):
    seen = []
    withstand(create_model("cnn_small"), digits, epsilons=(0.0,), batch_size=10, progress=lambda *at: seen.append(at))
    assert seen == [(10, 24), (20, 24), (24, 24)]


def test_what_cannot_be_is_named(digits):
    model = create_model("cnn_small")
    with pytest.raises(ConfigError, match="method: expected one of fgsm, bim, got 'pgd'"):
        withstand(model, digits, method="pgd")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"epsilon: expected numbers from 0 to 1, got \(2,\)"):
        withstand(model, digits, epsilons=(2,))
    with pytest.raises(ConfigError, match="data: expected at least one image, got none"):
        withstand(model, digits.subset([]))


def test_pairs_cannot_be_attacked():
    pairs = load_data("multimnist", "val", source="digits")
    with pytest.raises(ConfigError, match=r"data: expected one class in each image, got 2 \(multimnist\)"):
        withstand(create_model("cnn_small", (1, 36, 36)), pairs)
