from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.train import Recipe, load_recipe

MakeRecipe = Callable[..., Recipe]


def write_images(root: Path, seed: int) -> Path:
    """Write two classes of 15 grey images, 20x20: a bright bar at the top or at the bottom."""
    generator = np.random.default_rng(seed)
    for top, name in ((4, "high"), (12, "low")):
        (root / name).mkdir(parents=True)
        for number in range(15):
            pixels = generator.integers(0, 120, (20, 20), dtype=np.uint8)
            pixels[top : top + 4] += 120
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("bars") / "images", 0)


@pytest.fixture
def recipe(images: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRecipe:
    """A recipe of a second, without the measurement of memory, which needs a process for each run."""
    monkeypatch.setattr("torchcaps.bench.step_memory.step_memory", lambda path: 12.5)

    def make(*overrides: str) -> Recipe:
        small = ["data.batch_size=12", "trainer.epochs=2", "trainer.checkpoint_every=1", "optim.warmup=0"]
        words = ["model.options={decoder = 'none'}", f"data.options.path={images}", "trainer.accelerator=cpu"]
        return load_recipe("folder", [*words, *small, *overrides])

    return make
