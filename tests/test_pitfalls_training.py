"""Mistakes that public capsule code has made in data and training: each has a test here that it would fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.data import (
    DATASETS,
    Augment,
    BatchLoader,
    DatasetEntry,
    ImageDataset,
    InMemoryDataset,
    load_data,
    to_float,
)
from torchcaps.models import MODELS, ImageModel, create_model
from torchcaps.train import Run, fit, load_recipe
from torchcaps.types import Capsules

STEPS_PER_EPOCH = 3
EPOCHS = 2


def tiny(split: str, test_seed: int) -> ImageDataset:
    """Noise in three classes; `test_seed` changes the test split and nothing else."""
    seed, count = {"train": (1, 24), "val": (2, 12), "test": (test_seed, 12)}[split]
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 1, 20, 20), dtype=torch.uint8, generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    return InMemoryDataset("tiny", split, images, labels, ("a", "b", "c"), "drawn at random")


class Watched(ImageModel):
    """The smallest network with a decoder, that remembers what it was shown and which classes were to be redrawn."""

    def __init__(self, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__(image_shape, num_classes)
        self.inner = create_model("capsnet_small", image_shape, num_classes)
        self.decoder = self.inner.decoder
        self.shown: list[tuple[bool, Tensor]] = []
        self.redrawn: list[tuple[Tensor, Tensor | None]] = []

    def forward(self, images: Tensor) -> Capsules:
        self.shown.append((self.training, images.clone()))
        return self.inner(images)

    def decode(self, capsules: Capsules, labels: Tensor | None = None) -> Tensor:
        if self.training:
            self.redrawn.append((capsules.activations.argmax(-1), labels))
        return super().decode(capsules, labels)


class Trained:
    """One run of the watched network, on data whose test split comes from a seed."""

    def __init__(self, folder: Path, test_seed: int) -> None:
        self.models: list[Watched] = []
        self.optimisers: set[int] = set()

        def make(image_shape: tuple[int, int, int], num_classes: int) -> Watched:
            self.models.append(Watched(image_shape, num_classes))
            return self.models[-1]

        step = torch.optim.Adam.step

        def counted(optimiser: torch.optim.Adam, *args: Any, **options: Any) -> Any:
            self.optimisers.add(id(optimiser))
            return step(optimiser, *args, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MODELS, "_items", {**MODELS._items, "watched": make})
            patch.setattr(DATASETS, "_items", {**DATASETS._items, "tiny": DatasetEntry("", "", "", tiny)})
            patch.setattr(torch.optim.Adam, "step", counted)
            recipe = load_recipe("digits", [
                "model.name=watched", "model.options={}", "data.name=tiny", f"data.options={{test_seed={test_seed}}}",
                "data.batch_size=8", "data.augment.shift=2", f"trainer.epochs={EPOCHS}", "trainer.accelerator=cpu",
            ])  # fmt: skip
            self.run: Run = fit(recipe, folder)
        # One is made to see whether the recipe works, one is trained, one is loaded to be tested.
        self.model = max(self.models, key=lambda model: sum(training for training, _ in model.shown))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("runs") / "first", test_seed=3)


def raw(split: str) -> Tensor:
    return to_float(tiny(split, 3).images)


def is_among(image: Tensor, images: Tensor) -> bool:
    return bool((images == image).flatten(1).all(1).any())


def test_augmentation_only_in_training(trained: Trained) -> None:
    seen = {training: [] for training in (True, False)}
    for model in trained.models:
        for training, images in model.shown:
            seen[training] += list(images)
    assert len(seen[True]) == EPOCHS * 24
    assert not all(is_among(image, raw("train")) for image in seen[True])
    held_out = torch.cat([raw("val"), raw("test")])
    # After each epoch the routing is looked at as well, on images of the validation part.
    assert len(seen[False]) >= EPOCHS * 12 + 12
    assert all(is_among(image, held_out) for image in seen[False])


def test_one_optimiser_serves_all_epochs(trained: Trained) -> None:
    assert len(trained.run.metrics()["epoch"]) == EPOCHS
    assert len(trained.optimisers) == 1


def test_test_split_selects_nothing(trained: Trained, tmp_path: Path) -> None:
    other = Trained(tmp_path / "other", test_seed=4)
    assert not torch.equal(tiny("test", 3).images, tiny("test", 4).images)
    for name, weight in trained.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name]), name
    for name in ("lr", "train_loss", "val_loss", "val_accuracy"):
        assert trained.run.metrics()[name] == other.run.metrics()[name]
    assert trained.run.weights.read_bytes() == other.run.weights.read_bytes()


def test_decoder_is_masked_by_label_in_training(trained: Trained) -> None:
    wrong = 0
    for winner, labels in trained.model.redrawn:
        assert labels is not None
        wrong += int((winner != labels).sum())
    # The winner alone would have been something else now and then.
    assert len(trained.model.redrawn) >= EPOCHS * STEPS_PER_EPOCH
    assert wrong > 0


def test_reconstruction_target_is_in_sigmoid_range() -> None:
    augment = Augment(shift=2, rotate=20.0, scale=0.1, shear=5.0, erase=0.2)
    for shuffle in (True, False):
        for images, _ in BatchLoader(load_data("digits", "val"), 100, shuffle=shuffle, augment=augment):
            assert images.min() >= 0
            assert images.max() <= 1
