"""The fuzzer: a short run of every reader, and the inputs that earlier runs found."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from raising import raises_about
from torchcaps.errors import DataError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "fuzz"))

import _engine
from _readers import READERS
from _seeds import seeds, unlisted_images

FOUND = sorted(_engine.KEPT.iterdir())

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
    tally = _engine.fuzz(seconds=7200, seed=0, readers=["idx"], inputs=16, keep=tmp_path / "kept")
    assert tally.findings[0] == "idx: IndexError: somewhere inside"
    assert list((tmp_path / "kept").iterdir())
    assert tally.summary()["findings"] == ["idx: IndexError: somewhere inside"]


@pytest.mark.slow
def test_two_minutes_of_every_reader(tmp_path: Path) -> None:
    """With a seed of the day, so that every run damages other inputs; the seed is in the message."""
    seed = int(time.time() // 86400)
    done = _engine.fuzz(120, seed, None, None, tmp_path).summary()
    assert set(done["per_reader"]) == set(READERS)
    assert min(done["per_reader"].values()) > 0, f"seed {seed}: {done['per_reader']}"
    assert not done["findings"], f"seed {seed}: {done['findings']}"
