"""The fuzzer: a short run of every reader, and the inputs that earlier runs found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.errors import DataError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "fuzz"))

import _engine
from _readers import READERS
from _seeds import seeds, unlisted_images

SCRIPT = Path(_engine.__file__).parent
FOUND = sorted(_engine.KEPT.iterdir())
# A process that the system ends while it damages inputs.
ENDING = """
import os, random, signal, sys
if "--place" in sys.argv:
    def choice(self, values):
        os.kill(os.getpid(), signal.SIGKILL)
    random.Random.choice = choice
"""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.name)
def test_earlier_findings(tmp_path: Path, path: Path) -> None:
    name = path.name.rpartition("-")[0]
    # The first call loads modules and networks, whose memory does not count.
    _engine.run_reader(name, seeds()[name][0], tmp_path, traced=False)
    assert _engine.run_reader(name, path.read_bytes(), tmp_path) is None


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("unlisted_image", "other_description")])
def test_valid_seeds(tmp_path: Path, name: str) -> None:
    for content in seeds()[name]:
        (tmp_path / "file.png").write_bytes(content)
        READERS[name](tmp_path / "file.png")


def test_unlisted_seeds(tmp_path: Path) -> None:
    path = tmp_path / "file.png"
    contents = unlisted_images()
    assert any(content.startswith(b"%!PS-Adobe") for content in contents)
    for content in contents:
        path.write_bytes(content)
        with raises_about(DataError, path):
            READERS["unlisted_image"](path)


@pytest.mark.parametrize("name", READERS)
def test_damaged_input(name: str) -> None:
    tally = _engine.fuzz(seconds=7200, seed=0, readers=[name], inputs=320)
    assert tally.findings == []
    assert tally.inputs == {name: 320}


def test_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(path: Path) -> None:
        raise IndexError("somewhere inside")

    def hungry(path: Path) -> bytes:
        return bytes(2 * _engine.MAX_MEMORY)

    def reserving(path: Path) -> None:
        try:
            torch.empty(2 * _engine.MAX_RESERVED, dtype=torch.uint8)
        except RuntimeError:
            raise DataError("a damaged file") from None

    def filling(path: Path) -> None:
        torch.ones(2 * _engine.MAX_GROWTH, dtype=torch.uint8)

    def talkative(path: Path) -> None:
        error = DataError("x")
        error.__class__ = type("Long", (DataError,), {"__str__": lambda self: "x" * 9999})
        raise error

    monkeypatch.setitem(READERS, "idx", wrong)
    assert _engine.run_reader("idx", b"x", tmp_path) == "IndexError: somewhere inside"
    monkeypatch.setitem(READERS, "idx", hungry)
    assert "bytes of memory for 1" in str(_engine.run_reader("idx", b"x", tmp_path))
    monkeypatch.setitem(READERS, "idx", talkative)
    assert "9,999 characters" in str(_engine.run_reader("idx", b"x", tmp_path))
    monkeypatch.setitem(READERS, "idx", wrong)
    monkeypatch.setitem(READERS, "idx", reserving)
    assert "bytes of memory reserved" in str(_engine.run_reader("idx", b"x", tmp_path, traced=False))
    monkeypatch.setitem(READERS, "idx", filling)
    assert "beside those of Python" in str(_engine.run_reader("idx", b"x", tmp_path, traced=False))
    monkeypatch.setitem(READERS, "idx", wrong)
    tally = _engine.fuzz(seconds=7200, seed=0, readers=["idx"], inputs=16, keep=tmp_path / "kept")
    assert tally.findings[0] == "idx: IndexError: somewhere inside"
    assert list((tmp_path / "kept").iterdir())
    assert tally.summary()["findings"] == ["idx: IndexError: somewhere inside"]


def run_script(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT), *words, "--json"], stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    assert done.returncode == bool(found["findings"])
    return found


def test_input_that_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python imports this module when it starts.
    (tmp_path / "sitecustomize.py").write_text(ENDING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run_script("--inputs", "16", "--readers", "idx", "--keep", str(tmp_path / "kept"))
    assert found["findings"] == [f"idx: the process ended with code {-signal.SIGKILL}"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.startswith("idx-")


@pytest.mark.slow
def test_two_minutes_of_every_reader(tmp_path: Path) -> None:
    """With a seed of the day, so that every run damages other inputs; the seed is in the message."""
    seed = int(time.time() // 86400)
    done = run_script("--seconds", "120", "--seed", str(seed), "--keep", str(tmp_path))
    assert not done["findings"], f"seed {seed}: {done['findings']}"
    assert set(done["per_reader"]) == set(READERS)
    assert min(done["per_reader"].values()) > 0, f"seed {seed}: {done['per_reader']}"
