"""Drawn faces and shapes."""

from __future__ import annotations

import pytest
import torch

import torchcaps as tc
from raising import raises_about
from torchcaps.data.faces import ORDERS
from torchcaps.errors import ConfigError


@pytest.mark.parametrize("name", ["faces", "overlapping_shapes"])
def test_samples_depend_on_their_number_alone(name):
    data = tc.load_data(name, "train")
    assert torch.equal(data.batch([7, 12_345]).images[1], data.batch([12_345]).images[0])
    assert not torch.equal(tc.load_data(name, "train", seed=1).batch([7]).images, data.batch([7]).images)
    assert not torch.equal(tc.load_data(name, "val").batch([7]).images, data.batch([7]).images)
    with raises_about(ConfigError, "seed", "-1"):
        tc.load_data(name, seed=-1)


def test_scrambled_faces_have_the_same_parts():
    whole, parts = (tc.load_data("faces", "test", scrambled=each).batch(range(1000)) for each in (False, True))
    assert torch.equal(whole.labels, parts.labels)
    assert not whole.meta["order"].any()
    assert set(parts.meta["order"].tolist()) == set(range(1, len(ORDERS))) == set(range(1, 12))
    ink = [batch.images.float().mean((1, 2, 3)) for batch in (whole, parts)]
    # The same strokes: only where they cross has a scrambled face less ink.
    assert (ink[0] / ink[1]).mean().item() == pytest.approx(1, abs=0.03)
    assert ((whole.images != parts.images).flatten(1).sum(1) > 10).all()


def test_mouth_and_eyes_give_the_class():
    batch = tc.load_data("faces", "train").batch(range(4000))
    means = [batch.images[batch.labels == label].float().mean(0)[0] for label in range(4)]
    # Smiles and frowns differ in the lower third, open and closed eyes in the upper half.
    smile, frown = (means[0] + means[1]) / 2, (means[2] + means[3]) / 2
    assert (smile - frown).abs()[17:].mean() > 3 * (smile - frown).abs()[:12].mean()
    opened, closed = (means[0] + means[2]) / 2, (means[1] + means[3]) / 2
    assert (opened - closed).abs()[:12].mean() > 3 * (opened - closed).abs()[17:].mean()


def test_shapes_are_of_two_kinds_and_overlap():
    batch = tc.load_data("overlapping_shapes", "test").batch(range(500))
    assert batch.sources is not None
    assert (batch.labels[:, 0] != batch.labels[:, 1]).all()
    assert torch.equal(batch.sources.amax(dim=1), batch.images)
    assert batch.labels.flatten().bincount().tolist() == pytest.approx([250] * 4, abs=60)
    lit = (batch.sources > 64).flatten(2)  # [500, 2, 784]
    assert (lit.sum(2) > 15).all()
    boxes = (batch.sources[:, :, 0] > 64).any(dim=2)  # [500, 2, 28], columns
    assert boxes.all(dim=1).any(dim=1).float().mean() > 0.95
