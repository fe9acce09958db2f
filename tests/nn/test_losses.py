from __future__ import annotations

import math

import pytest
import torch

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError
from torchcaps.nn import LOSSES, CrossEntropyLoss, LikelihoodLoss, MarginLoss, ReconstructionLoss
from torchcaps.types import Capsules


def lengths(values: list[list[float]]) -> Capsules:
    activations = torch.tensor(values, dtype=torch.float64)
    return Capsules(activations.unsqueeze(-1), activations)


def test_margin_by_hand() -> None:
    caps = lengths([[0.5, 0.3, 0.05], [0.95, 0.6, 0.1]])
    # (0.9 - 0.5)^2 + 0.5 (0.3 - 0.1)^2; then 0 + 0.5 (0.6 - 0.1)^2.
    expected = ((0.16 + 0.5 * 0.04) + 0.5 * 0.25) / 2
    assert MarginLoss()(caps, torch.tensor([0, 0])).item() == pytest.approx(expected)


def test_margin_options() -> None:
    loss = MarginLoss(present=1.0, absent=0.0, absent_weight=2.0)
    assert loss(lengths([[0.5, 0.25]]), torch.tensor([0])).item() == pytest.approx(0.25 + 2 * 0.0625)


def test_several_classes_in_one_image() -> None:
    caps = lengths([[0.9, 0.4, 0.9]])
    both = MarginLoss()(caps, torch.tensor([[1, 0, 1]]))
    assert both.item() == pytest.approx(0.5 * 0.09)
    none = MarginLoss()(caps, torch.zeros(1, 3))
    assert none.item() == pytest.approx(0.5 * (0.64 + 0.09 + 0.64))


@pytest.mark.parametrize("loss", [MarginLoss(), CrossEntropyLoss()])
def test_labels_as_numbers_or_one_hot(loss: torch.nn.Module) -> None:
    caps = lengths(torch.rand(4, 4).tolist())
    labels = torch.tensor([3, 0, 1, 1])
    torch.testing.assert_close(loss(caps, labels), loss(caps, torch.eye(4)[labels]))


@pytest.mark.parametrize("loss", [MarginLoss(), CrossEntropyLoss()])
def test_two_labels_as_numbers_or_multi_hot(loss: torch.nn.Module) -> None:
    caps = lengths(torch.rand(3, 5).tolist())
    labels = torch.tensor([[3, 0], [1, 2], [4, 3]])
    there = torch.zeros(3, 5).scatter(1, labels, 1.0)
    torch.testing.assert_close(loss(caps, labels), loss(caps, there))


@pytest.mark.parametrize("shape", [(2,), (3, 6), (3, 3), (2, 2), (3, 1, 1)])
def test_labels_of_no_use(shape: tuple[int, ...]) -> None:
    with raises_about(ShapeError, "labels", shape):
        MarginLoss()(lengths(torch.rand(3, 5).tolist()), torch.zeros(shape, dtype=torch.int64))


def test_cross_entropy_by_hand() -> None:
    caps = Capsules(torch.tensor([[[1.0], [2.0], [0.0]]]), torch.zeros(1, 3))
    total = math.e + math.e**2 + 1
    assert CrossEntropyLoss()(caps, torch.tensor([1])).item() == pytest.approx(-math.log(math.e**2 / total))
    two = CrossEntropyLoss()(caps, torch.tensor([[1, 1, 0]]))
    assert two.item() == pytest.approx(-0.5 * (math.log(math.e / total) + math.log(math.e**2 / total)))


def test_cross_entropy_without_label() -> None:
    caps = Capsules(torch.randn(2, 3, 1), torch.zeros(2, 3))
    one = CrossEntropyLoss()(Capsules(caps.poses[:1], caps.activations[:1]), torch.tensor([1]))
    torch.testing.assert_close(CrossEntropyLoss()(caps, torch.tensor([[0, 1, 0], [0, 0, 0]])), one / 2)


@pytest.mark.parametrize("name", LOSSES.names())
def test_gradient_of_every_loss(name: str) -> None:
    loss, labels = LOSSES[name]().eval(), torch.tensor([0, 2, 1])
    scores = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: loss(Capsules(s.unsqueeze(-1), s), labels), scores)


@pytest.mark.parametrize("name", LOSSES.names())
def test_losses_are_batch_means(name: str) -> None:
    loss = LOSSES[name]().eval()
    caps, labels = lengths(torch.rand(4, 5).tolist()), torch.tensor([0, 1, 2, 2])
    alone = [loss(Capsules(*(part[i : i + 1] for part in caps)), labels[i : i + 1]) for i in range(4)]
    torch.testing.assert_close(loss(caps, labels), torch.stack(alone).mean())


@pytest.mark.parametrize("name", LOSSES.names())
def test_losses_fall_with_true_class_activation(name: str) -> None:
    loss = LOSSES[name]().eval()
    values = [loss(lengths([[a, 0.3, 0.2]]), torch.tensor([0])).item() for a in (0.1, 0.4, 0.8)]
    assert values[0] > values[1] > values[2]


@pytest.mark.parametrize("name", LOSSES.names())
@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 5, 1), ()])
def test_invalid_labels(name: str, shape: tuple[int, ...]) -> None:
    with raises_about(ShapeError, "labels", "(2,) class numbers"):
        LOSSES[name]()(lengths(torch.rand(2, 5).tolist()), torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("loss", [MarginLoss(), CrossEntropyLoss()])
def test_error_names_targets(loss: torch.nn.Module) -> None:
    with raises_about(ShapeError, "labels", (2, 4)):
        loss(lengths(torch.rand(2, 5).tolist()), torch.zeros(2, 4))


def test_cross_entropy_requires_scores() -> None:
    with raises_about(ShapeError, "poses", "(2, 3, 4)"):
        CrossEntropyLoss()(Capsules(torch.zeros(2, 3, 4), torch.zeros(2, 3)), torch.tensor([0, 1]))


def test_reconstruction_sums_pixels_and_averages_images() -> None:
    images = torch.zeros(2, 3, 4, 5)
    painted = torch.full((2, 3, 4, 5), 0.5)
    painted[1] = 1.0
    assert ReconstructionLoss()(painted, images).item() == pytest.approx(0.0005 * 60 * (0.25 + 1) / 2)


@pytest.mark.parametrize("classes", [2, 10])
def test_released_scale(classes: int) -> None:
    caps, labels = lengths(torch.rand(4, classes).tolist()), torch.randint(classes, (4,))
    painted, images = torch.rand(2, 4, 1, 6, 6, dtype=torch.float64)
    a, there = caps.activations, torch.eye(classes, dtype=torch.float64)[labels]
    margin = there * (0.9 - a).clamp(min=0) ** 2 + 0.5 * (1 - there) * (a - 0.1).clamp(min=0) ** 2
    sse = ((painted - images) ** 2).sum() / 4
    released = 0.5 * margin.mean() + 0.0005 * sse
    ours = MarginLoss()(caps, labels) + ReconstructionLoss(scale="released", num_classes=classes)(painted, images)
    torch.testing.assert_close(ours, 2 * classes * released)


def test_released_scale_is_twenty_times_paper() -> None:
    assert ReconstructionLoss(scale="released").weight == pytest.approx(20 * ReconstructionLoss().weight)
    assert ReconstructionLoss(0.25).weight == 0.25


def test_gradient_of_reconstruction() -> None:
    painted = torch.rand(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    images = torch.rand(2, 1, 3, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: ReconstructionLoss(1.0)(x, images), painted)


def test_reconstruction_of_another_shape() -> None:
    with raises_about(ShapeError, "reconstruction:", (2, 1, 4, 4), (2, 16)):
        ReconstructionLoss()(torch.zeros(2, 16), torch.zeros(2, 1, 4, 4))


def test_unknown_scale() -> None:
    with raises_about(ConfigError, "scale", "'mean'"):
        ReconstructionLoss(scale="mean")  # pyright: ignore[reportArgumentType]


def test_likelihood_equals_softmax_cross_entropy() -> None:
    torch.manual_seed(0)
    scores = (3 * torch.randn(5, 4)).double().requires_grad_()
    labels = torch.tensor([0, 3, 1, 1, 2])
    loss = LikelihoodLoss()(Capsules(torch.zeros(5, 4, 16), scores.softmax(-1)), labels)
    expected = torch.nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(got, torch.autograd.grad(expected, scores)[0])


def test_likelihood_of_zero_activation_is_finite() -> None:
    scores = torch.tensor([[200.0, 0.0], [80.0, 0.0]], requires_grad=True)
    loss = LikelihoodLoss()(Capsules(torch.zeros(2, 2, 3), scores.softmax(-1)), torch.tensor([1, 1]))
    loss.backward()
    assert loss.isfinite()
    assert scores.grad is not None
    # Where the activation is not zero in this type, the gradient is that of cross-entropy.
    torch.testing.assert_close(scores.grad[1], torch.tensor([0.5, -0.5]))
    assert scores.grad.isfinite().all()


def test_likelihood_of_several_labels_is_mean() -> None:
    caps = Capsules(torch.zeros(1, 3, 2), torch.tensor([[0.5, 0.25, 0.25]]))
    loss = LikelihoodLoss()(caps, torch.tensor([[1.0, 1.0, 0.0]]))
    torch.testing.assert_close(loss, -torch.tensor([0.5, 0.25]).log().mean())


def test_likelihood_of_activation_share() -> None:
    activations = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.2, 0.2]])
    caps = Capsules(torch.zeros(2, 3, 16), activations)
    expected = -(math.log(0.1 / 1.5) + math.log(1 / 3)) / 2
    assert LikelihoodLoss()(caps, torch.tensor([1, 0])).item() == pytest.approx(expected)


def every_loss(**options: object) -> dict[str, torch.nn.Module]:
    return {name: LOSSES[name](**options).eval() for name in LOSSES}


@pytest.mark.parametrize("name", LOSSES.names())
def test_class_weights_weight_the_samples(name: str) -> None:
    torch.manual_seed(0)
    weight, labels = [0.5, 2.0, 1.0], torch.tensor([0, 1, 1, 2])
    caps = lengths(torch.rand(4, 3).tolist())
    alone = [every_loss()[name](Capsules(*(each[k : k + 1] for each in caps)), labels[k : k + 1]) for k in range(4)]
    expected = sum(weight[int(label)] * loss for label, loss in zip(labels, alone, strict=True)) / 4
    torch.testing.assert_close(every_loss(weight=weight)[name](caps, labels), expected)


@pytest.mark.parametrize("name", LOSSES.names())
def test_equal_class_weights_change_nothing(name: str) -> None:
    caps, labels = lengths(torch.rand(4, 3).tolist()), torch.tensor([0, 1, 1, 2])
    plain, equal = (every_loss(**options)[name](caps, labels) for options in ({}, {"weight": [1.0, 1.0, 1.0]}))
    torch.testing.assert_close(plain, equal)


def test_weight_of_two_classes_is_their_mean() -> None:
    caps = lengths([[0.9, 0.4, 0.9]])
    plain, weighted = (MarginLoss(weight=weight)(caps, torch.tensor([[0, 1]])) for weight in (None, [1.0, 4.0, 9.0]))
    torch.testing.assert_close(weighted, 2.5 * plain)


@pytest.mark.parametrize("weight", [[1.0, -1.0], [1.0, math.nan], [[1.0]], "balanced"])
@pytest.mark.parametrize("name", LOSSES.names())
def test_weights_that_are_none(name: str, weight: object) -> None:
    with raises_about(ConfigError, "weight:"):
        LOSSES[name](weight=weight)


@pytest.mark.parametrize("name", LOSSES.names())
def test_weights_of_other_classes(name: str) -> None:
    with raises_about(ShapeError, "weight:", "3", "got 2"):
        LOSSES[name](weight=[1.0, 2.0])(lengths([[0.1, 0.2, 0.3]]), torch.tensor([0]))
