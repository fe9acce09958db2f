from __future__ import annotations

import pytest
import torch

from torchcaps import create_model
from torchcaps.data import ImageDataset, load_data
from torchcaps.evaluation import Evaluation, evaluate
from torchcaps.models import ImageModel
from torchcaps.train import Run, fit, load_recipe
from torchcaps.types import Progress

# Seconds each: a few batches of the digits inside the package.
TINY = ("data.batch_size=32", "data.epoch_size=320", "optim.warmup=0", "trainer.accelerator=cpu", "trainer.epochs=1")
TWICE = "trainer.epochs=2"
CNN = ("model.name=cnn_small", "model.options={}")


class MemoryContext:
    """The `context` of a run without a folder."""

    def __init__(self, model: ImageModel, data: ImageDataset) -> None:
        self.model = model
        self._data = data

    def data(self, split: str) -> ImageDataset:
        assert split == "test"
        return self._data

    def evaluate(self, progress: Progress | None = None) -> Evaluation:
        return evaluate(self.model, self._data, progress=progress)


@pytest.fixture(scope="session")
def digits() -> ImageDataset:
    return load_data("digits", "test").subset(range(60))


@pytest.fixture(scope="session")
def model() -> ImageModel:
    torch.manual_seed(0)
    return create_model("capsnet_small").eval()


@pytest.fixture(scope="session")
def cnn() -> ImageModel:
    torch.manual_seed(0)
    return create_model("cnn_small").eval()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Trained networks by label: on digits with three iterations and with one, a CNN; pairs; translated digits."""
    folder = tmp_path_factory.mktemp("runs")

    def train(label: str, recipe: str, *overrides: str) -> Run:
        source = () if recipe == "digits" else ("data.options.source=digits",)
        return fit(load_recipe(recipe, [*TINY, *source, *overrides]), folder / label)

    return {
        "three": train("three", "digits", TWICE),
        "one": train("one", "digits", TWICE, "model.options.routing.iters=1", "model.options.decoder=none"),
        "cnn": train("cnn", "digits", *CNN),
        "pairs": train("pairs", "multimnist", "data.epoch_size=64"),
        "moved": train("moved", "translated_mnist"),
        "moved cnn": train("moved cnn", "translated_mnist", *CNN),
    }
