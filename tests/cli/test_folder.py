"""A user's own images: train on a folder, predict a folder, compare with the control."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from refusing import refused
from torchcaps.train import Run, parse_recipe

from .conftest import CLASSES

SHORT = ("epochs=1", "batch_size=16", "accelerator=cpu", "--no-report")


@pytest.fixture(scope="module")
def own(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the images with a file that cannot be read and one that is no image."""
    folder = tmp_path_factory.mktemp("own") / "my images"
    shutil.copytree(pictures, folder)
    (folder / "eel" / "broken.png").write_bytes(b"nothing")
    (folder / "eel" / "notes.txt").write_text("an eel")
    return folder


def test_train_a_folder(pictures: Path, tmp_path: Path, ask) -> None:
    code, out, _ = ask("train", pictures, *SHORT, "--out", tmp_path / "run")
    assert code == 0
    for words in (
        "images   48",
        "train 36, val 6, test 6",
        "model.options.backbone=",
        "data.options.image_size=[20, 20]",
    ):
        assert words in out
    assert "trainer.epochs=" not in out
    run = Run.open(tmp_path / "run")
    assert run.recipe.model.name == "backbone_capsnet"
    assert parse_recipe((run.path / "recipe.toml").read_text()) == run.recipe
    assert run.recipe.data.options["path"] == str(pictures)


def test_the_recipe_folder_looks_at_the_images_too(pictures: Path, tmp_path: Path, ask_json) -> None:
    document = ask_json("train", "folder", f"path={pictures}", *SHORT, "--out", tmp_path / "run")
    assert document["found"]["splits"].startswith("train 36")
    chosen = {choice["key"]: choice for choice in document["chosen"]}
    assert chosen["model.name"]["value"] == "backbone_capsnet"
    assert all(choice["why"] for choice in chosen.values())


@pytest.mark.filterwarnings("default:left out")
def test_bad_files_stop_or_are_left_out(own: Path, tmp_path: Path, ask) -> None:
    refused(ask, "train", own, *SHORT, about=[own / "eel" / "broken.png", "skip_bad"])
    code, out, err = ask("train", own, *SHORT, "--skip-bad", "--out", tmp_path / "run")
    assert code == 0
    assert any(line.startswith("note: ") and "broken.png" in line for line in err.splitlines())
    assert "1 bad file left out, and 1 file of other formats" in out


def test_folders_that_are_none(run: Path, tmp_path: Path, ask) -> None:
    refused(ask, "train", run, about=["recipe:", run, "--resume"])
    refused(ask, "train", "", about=["recipe:", "''"])
    refused(ask, "train", "folder", about=["data.options.path", "not set"])
    refused(ask, "train", tmp_path, about=[tmp_path, "sub-folder"])
    refused(ask, "train", tmp_path / "nowhere", about=["unknown recipe", "nowhere"])


def test_find_lr(pictures: Path, tmp_path: Path, ask) -> None:
    code, out, _ = ask("train", pictures, *SHORT, "--find-lr", "--out", tmp_path / "run")
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("learning rate: ")]
    assert f"{Run.open(tmp_path / 'run').recipe.optim.lr:.2g}" in line


def test_predict_a_folder_as_csv(run: Path, own: Path, ask) -> None:
    code, out, err = ask("predict", run, own, "--csv")
    assert code == 3
    assert err.count("\n") == 1
    assert str(own / "eel" / "broken.png") in err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 48
    assert list(rows[0]) == ["image", "label", *CLASSES]
    for row in rows:
        assert row["label"] == max(CLASSES, key=lambda name: float(row[name]))
        assert Path(row["image"]).is_file()


def test_predict_goes_on_past_a_bad_file(run: Path, own: Path, tmp_path: Path, ask) -> None:
    good, bad = own / "eel" / "1.png", own / "eel" / "broken.png"
    code, out, _ = ask("predict", run, bad, good, "--json", "--out", tmp_path / "figures")
    document = json.loads(out)
    assert code == 3
    assert [entry["image"] for entry in document["predictions"]] == [str(good)]
    assert len(document["errors"]) == 1
    refused(ask, "predict", run, bad, about=[bad])
    (tmp_path / "empty").mkdir()
    refused(ask, "predict", run, tmp_path / "empty", about=[tmp_path / "empty", "has none"])
    refused(ask, "predict", run, good, "--csv", "--json", about=["--csv"])


def test_compare_with_the_control(pictures: Path, tmp_path: Path, ask_json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.bench.step_memory.step_memory", lambda path: 12.5)
    words = ["compare", pictures, *SHORT[:3], "--routers", "dynamic", "--controls", "backbone_linear", "--seeds", "1"]
    document = ask_json(*words, "--out", tmp_path / "out")
    rows = {row["router"]: row for row in document["rows"]}
    assert list(rows) == ["dynamic", "backbone_linear"]
    assert all(run["status"] == "finished" for row in rows.values() for run in row["runs"])
    assert rows["backbone_linear"]["entropy"] is None
    assert rows["dynamic"]["entropy"] is not None
    recipes = [Run.open(tmp_path / "out" / f"{name}-seed0").recipe for name in rows]
    assert recipes[0].trainer == recipes[1].trainer
    assert recipes[0].data == recipes[1].data
    assert recipes[0].model.options["backbone"] == recipes[1].model.options["backbone"]


def test_another_recipe_on_a_folder(pictures: Path, tmp_path: Path, ask_json) -> None:
    words = ("train", "digits", "data.name=folder", f"path={pictures}", "epochs=1", "accelerator=cpu", "--no-report")
    document = ask_json(*words, "--out", tmp_path / "run")
    chosen = {choice["key"]: choice["value"] for choice in document["chosen"]}
    assert (chosen["data.batch_size"], chosen["data.options.image_size"]) == (8, [20, 20])
    assert Run.open(tmp_path / "run").recipe.model.name == "capsnet_small"
