from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from refusing import refused
from torchcaps.report.registry import ENTRIES

# A short run on a folder of images is no translated MNIST, and attacks take long.
DRAWN = [entry.name for entry in ENTRIES if entry.in_report and not entry.model_specific] + ["vote_plane"]


@pytest.mark.parametrize("name", [*DRAWN, "training_loss", "logit_change"])
def test_every_figure(name: str, run: Path, ask) -> None:
    file = run / "figures" / f"{name}.png"
    file.unlink(missing_ok=True)
    assert ask("show", run, "--figure", name) == (0, f"{file}\n", "")
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_vector_graphics(suffix: str, start: bytes, run: Path, ask_json, tmp_path: Path) -> None:
    file = tmp_path / "new" / f"curves.{suffix}"
    document = ask_json("show", run, "--figure", "curves", "--out", file)
    assert (document["run"], document["figure"], document["path"]) == (str(run), "curves", str(file))
    assert document["caption"].startswith("Loss and accuracy")
    assert file.read_bytes().startswith(start)


def test_curves_during_training(run: Path, ask, tmp_path: Path) -> None:
    running = tmp_path / "running"
    running.mkdir()
    for name in ("recipe.toml", "run.json", "metrics.csv", "diagnostics.csv"):
        shutil.copy(run / name, running)
    assert ask("show", running, "--figure", "curves")[0] == 0
    assert ask("show", running, "--figure", "routing_curves")[0] == 0
    (running / "diagnostics.csv").unlink()
    code, out, err = ask("show", running, "--figure", "routing_curves")
    assert (code, out) == (2, "")
    assert "'running' (the run has no diagnostics.csv)" in err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--figure", "curve"], ["unknown figure 'curve'", "'curves'"]),
        (["--figure", "curves", "--out", "x.docx"], ["--out", "'x.docx'"]),
        (["--figure", "coupling"], ["coupling", "no routing layer"]),
        (["--figure", "affine_predictions"], ["affine_predictions", "translated_mnist"]),
    ],
)
def test_errors(words: list[str], names: list[str], cnn_run: Path, ask) -> None:
    code, out, err = ask("show", cnn_run, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for name in names:
        assert name in err


def test_all_figures(run: Path, ask, ask_json) -> None:
    document = ask_json("show", run)
    assert set(document["figures"]) == {*DRAWN, "explanations"}
    assert set(document["missing"]) == {"transformations", "phases"}
    assert all(Path(file).read_bytes().startswith(b"\x89PNG") for file in document["figures"].values())
    refused(ask, "show", run, "--out", "x.png", about=["--out", "x.png"])
