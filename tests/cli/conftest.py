from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from torchcaps.cli import main

# A class may be called anything that a folder may be called.
CLASSES = ("[bold]cat", "dog & <b>", "eel")
# Small enough to train in a second.
TINY = (
    "model.name=capsnet_small",
    "trainer.epochs=2",
    "data.batch_size=16",
    "optim.warmup=0",
    "trainer.accelerator=cpu",
    "loss.reconstruction=0.01",
)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own images: three classes of stripes in different directions, as PNG files of 20x20."""
    root = tmp_path_factory.mktemp("mine") / "pictures"
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :20]
    for name, wave in zip(CLASSES, (rows, columns, rows + columns), strict=True):
        (root / name).mkdir(parents=True)
        for number in range(16):
            light = 127 + 127 * np.sin(wave + generator.uniform(0, 6))
            Image.fromarray(light.astype(np.uint8)).save(root / name / f"{number}.png")
    return root


def train_in(folder: Path, *words: str) -> Path:
    assert main(["train", "folder", *TINY, *words, "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    return train_in(tmp_path_factory.mktemp("runs") / "capsules", f"data.options.path={pictures}")


@pytest.fixture(scope="session")
def cnn_run(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Path:
    changes = ("model.name=cnn_small", "model.options={}", f"data.options.path={pictures}")
    return train_in(tmp_path_factory.mktemp("runs") / "cnn", *changes)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def ask_json(ask: Callable[..., tuple[int, str, str]]) -> Callable[..., Any]:
    """Run a verb with --json: the document, once exit code and streams are as they should be."""

    def call(*words: object) -> Any:
        code, out, err = ask(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call
