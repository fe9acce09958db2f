from __future__ import annotations

import shutil

import pytest

from .conftest import TINY


@pytest.fixture
def words(pictures, tmp_path):
    changes = ("model.name=cnn_small", "model.options={}", f"data.options.path={pictures}", "trainer.epochs=1")
    return ["train", "folder", *TINY, *changes, "--out", str(tmp_path / "runs")]


def test_folds(ask, ask_json, words, tmp_path):
    document = ask_json(*words, "--folds", "2")
    assert document["status"] == "finished"
    assert [run["fold"] for run in document["runs"]] == [1, 2]
    assert document["metrics"]["f1_macro"]["count"] == 2
    assert (tmp_path / "runs" / "report.html").exists()
    # The same command trains what is missing.
    shutil.rmtree(tmp_path / "runs" / "fold2")
    code, out, _ = ask(*words, "--folds", "2", "--quiet", "--no-report")
    assert code == 0
    assert "deviation" in out
    assert "fold2" in out


@pytest.mark.parametrize(
    ("options", "about"),
    [
        (["--folds", "17"], ["folds", "16", "17"]),
        (["--groups", "folder"], ["--groups", "--folds"]),
        (["--seeds", "2", "--find-lr"], ["--find-lr", "--seeds"]),
        (["--seeds", "0"], ["seeds", "0"]),
        (["--folds", "2", "--groups", "folder"], ["sub-folder"]),
    ],
)
def test_mistakes(ask, words, options, about):
    code, out, err = ask(*words, *options)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in about)
