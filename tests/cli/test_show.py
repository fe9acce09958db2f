from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from torchcaps.eval import PICTURES
from torchcaps.eval.pictures import OWN


@pytest.mark.parametrize("what", [what for what in PICTURES if what not in OWN])
def test_every_picture_can_be_drawn(what: str, run: Path, ask) -> None:
    file = run / "pictures" / f"{what}.png"
    file.unlink()
    assert ask("show", run, "--what", what) == (0, f"{file}\n", "")
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_drawings_that_scale(suffix: str, start: bytes, run: Path, ask_json, tmp_path: Path) -> None:
    file = tmp_path / "new" / f"curves.{suffix}"
    document = ask_json("show", run, "--what", "curves", "--out", file)
    assert document == {"run": str(run), "what": "curves", "path": str(file)}
    assert file.read_bytes().startswith(start)


def test_curves_need_no_finished_run(run: Path, ask, tmp_path: Path) -> None:
    going_on = tmp_path / "going_on"
    going_on.mkdir()
    (going_on / "pictures").mkdir()
    for name in ("recipe.toml", "run.json", "metrics.csv", "diagnostics.csv"):
        shutil.copy(run / name, going_on)
    assert ask("show", going_on, "--what", "curves")[0] == 0
    assert ask("show", going_on, "--what", "routing_curves")[0] == 0
    # A run of an older version has no such file.
    (going_on / "diagnostics.csv").unlink()
    words = (
        f"run: expected one that was watched while it learned, got '{going_on}' "
        "(it has no diagnostics.csv; --what diagnostics looks at it as it is now)\n"
    )
    assert ask("show", going_on, "--what", "routing_curves") == (2, "", words)


def test_mistakes_are_named(run: Path, cnn_run: Path, ask) -> None:
    assert ask("show", run, "--what", "curve")[2] == "unknown picture 'curve'; did you mean 'curves'?\n"
    words = "--out: expected a file that ends in .png, .pdf, .svg, got 'x.docx'\n"
    assert ask("show", run, "--what", "curves", "--out", "x.docx") == (2, "", words)
    words = "coupling: expected a model that has them, got CNN (this model has no routing)\n"
    assert ask("show", cnn_run, "--what", "coupling") == (2, "", words)
