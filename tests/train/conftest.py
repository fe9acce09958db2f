from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchcaps.train import Recipe, load_recipe

MakeRecipe = Callable[..., Recipe]


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 20 grey images each, 20x20: a bright bar at a height of its own, in noise."""
    root = tmp_path_factory.mktemp("pictures")
    draw = np.random.default_rng(0)
    for k, name in enumerate(("high", "low", "middle")):
        (root / name).mkdir()
        for number in range(20):
            pixels = draw.integers(0, 120, (20, 20), dtype=np.uint8)
            pixels[4 + 5 * k : 7 + 5 * k] += 120
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


@pytest.fixture
def recipe(pictures: Path) -> MakeRecipe:
    """A recipe of seconds on those images: 48 for training, 3 batches of 16 in each of 3 epochs."""

    def make(*overrides: str) -> Recipe:
        small = ["data.batch_size=16", "trainer.epochs=3", "trainer.checkpoint_every=2", "optim.warmup=2"]
        return load_recipe("folder", [f"data.options.path={pictures}", "trainer.accelerator=cpu", *small, *overrides])

    return make
