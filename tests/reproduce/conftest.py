from __future__ import annotations

import pytest

from torchcaps.train import Run, load_recipe, start

# Seconds each: a few batches of the digits inside the package.
TINY = ("data.batch_size=32", "data.epoch_size=320", "optim.warmup=0", "trainer.accelerator=cpu", "trainer.epochs=1")
TWICE = "trainer.epochs=2"
CNN = ("model.name=cnn_small", "model.options={}")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Trained networks by label: on digits with three iterations and with one, a CNN; pairs; translated digits."""
    folder = tmp_path_factory.mktemp("runs")

    def train(label: str, recipe: str, *overrides: str) -> Run:
        source = () if recipe == "digits" else ("data.options.source=digits",)
        return start(load_recipe(recipe, [*TINY, *source, *overrides]), folder / label)

    return {
        "three": train("three", "digits", TWICE),
        "one": train("one", "digits", TWICE, "model.options.routing.iters=1", "model.options.decoder=none"),
        "cnn": train("cnn", "digits", *CNN),
        "pairs": train("pairs", "multimnist", "data.epoch_size=64"),
        "moved": train("moved", "translated_mnist"),
        "moved cnn": train("moved cnn", "translated_mnist", *CNN),
    }
