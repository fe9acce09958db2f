"""Run folders by somebody else, and folders that cannot be written to."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from refusing import refused
from torchcaps.train import load_recipe

SMALL = ["model.name=cnn_small", "model.options={}", "trainer.epochs=1", "data.epoch_size=64", "optim.warmup=0"]


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run, tmp_path / "copy")


@pytest.fixture
def read_only(copy: Path) -> Iterator[Path]:
    """A run on a file system that is mounted read-only."""
    mount = ["mount", "--bind", "-o", "ro", str(copy), str(copy)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        if not (copy / "run.json").exists():
            pytest.fail("the mounted folder is empty")
        yield copy
    finally:
        subprocess.run(["umount", "--lazy", str(copy)], check=True)


def test_links_in_a_run_are_not_written_through(copy: Path, pictures: Path, tmp_path: Path, ask) -> None:
    victim, outside = tmp_path / "victim", tmp_path / "outside"
    victim.write_text("precious")
    outside.mkdir()
    (copy / "figures" / "curves.png").unlink()
    (copy / "figures" / "curves.png").symlink_to(victim)
    shutil.rmtree(copy / "figures" / "predictions", ignore_errors=True)
    (copy / "figures" / "predictions").symlink_to(outside)
    assert ask("show", copy, "--figure", "curves")[0] == 0
    refused(ask, "predict", copy, next((pictures / "eel").iterdir()), about=["predictions", "symbolic link"])
    assert victim.read_text() == "precious"
    assert not any(outside.iterdir())


def test_non_finite_weights(copy: Path, pictures: Path, ask) -> None:
    weights = load_file(copy / "weights.safetensors")
    save_file({name: weight * float("nan") for name, weight in weights.items()}, copy / "weights.safetensors")
    refused(ask, "predict", copy, next((pictures / "eel").iterdir()), about=["weights:", "NaN"])


@pytest.mark.filterwarnings("always")
def test_read_only_run_still_answers(
    read_only: Path, pictures: Path, tmp_path: Path, ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("predict", read_only, next((pictures / "eel").iterdir())), ("show", read_only, "--figure", "curves")
    for each in words:
        code, _, err = ask(*each)
        assert code == 0
        assert err.startswith("note: file: ")
        assert "Read-only" in err
    assert (tmp_path / "curves.png").exists()
    assert ask("eval", read_only)[0] == 0
    code, out, err = ask("eval", read_only, "--protocol", "corruptions")
    assert (code, err.startswith("note: file: ")) == (0, True)
    assert "gaussian noise" in out
    refused(ask, "train", "--resume", read_only, "trainer.epochs=9", about=["Read-only"])


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "a/b", "a\\b", "\x1b[2J", "x" * 200, ""])
def test_names_of_recipes_stay_in_the_folder(name: str, tmp_path: Path, ask, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    recipe = inside / "theirs.toml"
    recipe.write_text(load_recipe("digits", SMALL).to_toml())
    text = recipe.read_text().replace('name = "digits"', f"name = {json.dumps(name)}", 1)
    recipe.write_text(text)
    refused(ask, "train", recipe, about=["name:"])
    assert list(tmp_path.rglob("*")) == [inside, recipe]


@pytest.mark.parametrize(
    "change",
    [
        "model.options.routing.iters='x'",
        "model.options.routing=5",
        "model.options.routing.name=[]",
        "loss.options.weight=5",
        "optim.options.betas='x'",
    ],
)
def test_wrong_values_in_a_recipe(change: str, tmp_path: Path, ask) -> None:
    words = ("train", "digits", change, "--out", tmp_path / "run")
    assert refused(ask, *words, about=["expected"])
    assert not (tmp_path / "run").exists()
