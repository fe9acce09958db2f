"""A user's own signals and images in one file: the recipe that is chosen, and training with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from formats import array_file, pixels, signal_file
from refusing import refused
from torchcaps.train import Run, choose_array_recipe


@pytest.fixture
def signals(tmp_path: Path) -> Path:
    path = tmp_path / "My Set_TRAIN.ts"
    path.write_bytes(signal_file([24] * 30 + [20] * 10))
    return path


def test_train_a_file_of_signals(signals: Path, tmp_path: Path, ask) -> None:
    code, out, _ = ask("train", signals, "epochs=1", "accelerator=cpu", "--out", tmp_path / "run")
    assert code == 0
    for words in ("signals   40", "train 26, val 6, test 8", "from 20 to 24, resampled to 24", 'name="capsnet_1d"'):
        assert words in out
    assert f"predict {tmp_path}" not in out
    run = Run.open(tmp_path / "run")
    assert run.describe_model().image_shape == (2, 24)
    assert run.load_model().image_shape == (2, 24)
    assert (tmp_path / "run" / "report.html").is_file()
    refused(ask, "predict", tmp_path / "run", signals, about=["(2, 24)"])
    code, out, _ = ask("explain", tmp_path / "run", "--test", "0,1", "--out", tmp_path)
    assert code == 0
    assert "most coupled to" in out
    assert (tmp_path / "routing.png").is_file()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Dark shades mark the samples" in page


def test_chosen_values(signals: Path, tmp_path: Path) -> None:
    chosen = choose_array_recipe(signals, ["model.name=cnn_1d", "optim.lr=0.5"])
    assert chosen.recipe.model.name == "cnn_1d"
    assert chosen.recipe.optim.lr == 0.5
    assert not [choice for choice in chosen.choices if choice.key.startswith("model.")]
    assert all(choice.why for choice in chosen.choices)
    volumes = tmp_path / "v.npz"
    volumes.write_bytes(array_file(pixels(30, 14, 14, 14)))
    assert choose_array_recipe(volumes).recipe.model.name == "capsnet_3d"
    images = tmp_path / "i.npz"
    images.write_bytes(array_file(pixels(40, 16, 16), y=np.arange(40) // 30))
    recipe = choose_array_recipe(images).recipe
    assert recipe.model.name == "backbone_capsnet"
    assert recipe.loss.options == {"weight": "balanced"}
    assert recipe.data.augment.rotate > 0


def test_wrong_files_are_named(tmp_path: Path, ask) -> None:
    refused(ask, "train", tmp_path / "none.ts", about=["none.ts"])
    bad = tmp_path / "bad.ts"
    bad.write_text("@classLabel true a b\n@data\n1,?:a\n")
    refused(ask, "train", bad, about=[bad, "line 3", "'?'"])
    short = tmp_path / "short.ts"
    short.write_bytes(signal_file([4] * 20))
    code, _, err = ask("train", short, "epochs=1", "--out", tmp_path / "run")
    assert code == 2
    assert "image_shape: expected length of at least 19, got (2, 4)" in err
