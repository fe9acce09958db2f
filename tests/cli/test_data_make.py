from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import CLASSES, TINY


def test_make_shards_and_train(pictures: Path, tmp_path: Path, ask, ask_json) -> None:
    out = tmp_path / "shards"
    document = ask_json("data", "make", "shards", pictures, out, "shard_size=10", "channels=1")
    assert document["image_shape"] == [1, 20, 20]
    assert [entry["count"] for entry in document["splits"]["train"]] == [10, 10, 10, 6]
    code, output, _ = ask("data", "show", "shards", f"path={out}", "--out", tmp_path / "grid.png")
    assert code == 0
    assert all(name in output for name in CLASSES)
    run = tmp_path / "run"
    changes = ("data.name=shards", f"data.options.path={out}", "data.options.buffer=12", *TINY)
    assert ask("train", "folder", *changes, "--out", run, "--quiet")[0] == 0
    assert ask_json("eval", run)["count"] == 6


@pytest.mark.parametrize(("words", "message"), [
    ((), "unknown form '' of data make; known: shards"),
    (("shard", "a", "b"), "unknown form 'shard' of data make; did you mean 'shards'?"),
    (("shards", "a"), "data make shards: expected FOLDER OUT, got a"),
    (("shards", "a", "b", "sise=3"), "unknown option 'sise' of data make shards"),
    (("shards", "no/such", "b"), "no/such: expected a folder of images"),
])  # fmt: skip
def test_errors_name_the_argument(ask, words, message) -> None:
    code, _, err = ask("data", "make", *words)
    assert code == 2
    assert err.startswith(message)
