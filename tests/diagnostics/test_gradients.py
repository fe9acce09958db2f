"""The coherence of gradients, and that the matrix networks start with coherent ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps import create_model
from torchcaps.data import Augment, load_data, to_float, transforms
from torchcaps.diagnostics import EpochDiagnostics, diagnose, gradient_coherence
from torchcaps.errors import DataError
from torchcaps.nn import MarginLoss, SpreadLoss
from torchcaps.types import Capsules

Batch = tuple[Tensor, Tensor]


def squared(capsules: Capsules, labels: Tensor) -> Tensor:
    return (capsules.poses.sum(-1) * F.one_hot(labels, 3)).square().sum()


class Layer(nn.Module):
    """Two linear layers, the second of which has no influence."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.unused = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Capsules:
        poses = self.first(images).unsqueeze(-1)  # [B, 3, 1]
        return Capsules(poses, poses.norm(dim=-1))


def test_coherence_is_the_mean_cosine_of_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Layer()
    batches = [(torch.randn(5, 4, generator=generator), torch.arange(5) % 3) for _ in range(4)]
    found = gradient_coherence(model, squared, batches)
    assert list(found) == ["first"]
    assert all(weight.grad is None for weight in model.parameters())
    gradients = [
        torch.cat(
            [part.flatten() for part in torch.autograd.grad(squared(model(x), y), list(model.first.parameters()))]
        )
        for x, y in batches
    ]
    cosines = [float(F.cosine_similarity(a, b, dim=0)) for a, b in itertools.combinations(gradients, 2)]
    assert found["first"] == pytest.approx(sum(cosines) / len(cosines), abs=1e-6)


def test_coherence_of_equal_and_opposite_batches() -> None:
    model, images, labels = Layer(), torch.randn(5, 4), torch.arange(5) % 3

    def loss(capsules: Capsules, sign: Tensor) -> Tensor:
        return sign[0] * capsules.poses.sum()

    assert gradient_coherence(model, squared, [(images, labels)] * 3)["first"] == pytest.approx(1)
    opposite = [(images, torch.tensor([1.0])), (images, torch.tensor([-1.0]))]
    assert gradient_coherence(model, loss, opposite)["first"] == pytest.approx(-1)


def test_batches_without_gradient_do_not_count() -> None:
    model, images, labels = Layer(), torch.randn(5, 4), torch.arange(5) % 3
    batch, none = (images, labels), (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    assert gradient_coherence(model, squared, [batch, none, batch])["first"] == pytest.approx(1)
    assert gradient_coherence(model, squared, [batch, none]) == {}


def test_snapshots_have_the_coherence_of_each_layer() -> None:
    torch.manual_seed(0)
    model, data = create_model("capsnet_small"), load_data("digits", "val")
    after_epoch = EpochDiagnostics(data, Augment())(model, MarginLoss())
    diagnosed = diagnose(model, data, limit=64)
    for found in (after_epoch, diagnosed):
        assert set(found.gradient_coherence) == set(found.gradient_norms)
        assert all(-1 <= value <= 1 for value in found.gradient_coherence.values())
    rows = {row[1]: row[4] for row in after_epoch.rows(1) if row[3] == "gradient_coherence"}
    assert rows == after_epoch.gradient_coherence
    assert diagnosed.to_json()["gradient_coherence"] == diagnosed.gradient_coherence
    places = torch.linspace(0, len(data) - 1, 64).round().long()
    batches = [(to_float(data.images[places[n::4]]), data.labels[places[n::4]]) for n in range(4)]
    by_hand = gradient_coherence(model.eval(), MarginLoss(), batches)
    assert after_epoch.gradient_coherence == pytest.approx(by_hand, rel=1e-4, abs=1e-5)


def test_one_image_has_no_coherence() -> None:
    assert diagnose(create_model("capsnet_small"), load_data("digits", "val"), limit=1).gradient_coherence == {}


def balanced_batches(name: str) -> list[Batch]:
    """Six batches of about 32 images with all classes equally often: their gradients do not differ by their labels."""
    try:
        data = load_data(name, "train")
    except DataError as error:
        pytest.skip(str(error).splitlines()[0])
    each = 32 // data.num_classes
    # Images of one class that follow each other in smallNORB are views of one toy.
    chosen = [(data.labels == k).nonzero().flatten() for k in range(data.num_classes)]
    chosen = [own[torch.linspace(0, len(own) - 1, 6 * each).long()] for own in chosen]
    batches = [data.batch(torch.cat([own[n::6] for own in chosen])) for n in range(6)]
    side = min(32, data.image_shape[-1])
    return [(transforms.crop(to_float(batch.images), side), batch.labels) for batch in batches]


@pytest.mark.parametrize("name", ["digits", "smallnorb"])
def test_initial_matrix_gradients_are_coherent(name: str) -> None:
    batches = balanced_batches(name)
    _, channels, height, width = batches[0][0].shape
    classes = int(batches[0][1].max()) + 1

    def coherence(**options: Any) -> dict[str, float]:
        torch.manual_seed(0)
        model = create_model(
            "matrix_capsnet_small", (channels, height, width), classes, routing={"name": "em", **options}
        )
        return gradient_coherence(model, SpreadLoss(), batches)

    for iters in (1, 2, 3, 5):
        found = coherence(iters=iters)
        assert {"lower", "upper", "head"} <= set(found)
        assert min(found.values()) > 0.2, iters
    # A log density that counts in full turns the gradients through two E-steps of the lower layers into noise.
    assert coherence(iters=5, sharpness=1.0)["lower"] < 0.2
