from __future__ import annotations

import pytest

from torchcaps.train import load_recipe

from .conftest import TINY


@pytest.fixture
def words(pictures, tmp_path):
    changes = ("model.name=cnn_small", "model.options={}", f"data.options.path={pictures}", "trainer.epochs=1")
    return ["sweep", "folder", *TINY, *changes, "--out", str(tmp_path / "runs")]


def test_sweep(ask, ask_json, words, tmp_path):
    document = ask_json(*words, "optim.lr=0.001,0.01")
    assert [trial["values"] for trial in document["trials"]] == [{"optim.lr": "0.001"}, {"optim.lr": "0.01"}]
    best = document["trials"][document["best"]]
    assert load_recipe(document["best_recipe"]).optim.lr == float(best["values"]["optim.lr"])
    assert document["command"].endswith(f"train {document['best_recipe']}")
    code, out, err = ask(*words, "optim.lr=0.001,0.01", "--quiet")
    assert (code, err) == (0, "")
    assert "2 finished" in out
    assert f"best: optim.lr={best['values']['optim.lr']}" in out
    assert (tmp_path / "runs" / "sweep.png").exists()


@pytest.mark.parametrize(
    ("more", "about"),
    [
        ([], ["space", "several values"]),
        (["optim.lr=log(1,0)"], ["optim.lr", "log(1,0)"]),
        (["optim.lr=0.1,0.2", "--trials", "0"], ["trials", "0"]),
        (["optim.lr=0.1,0.2", "--workers", "2"], ["--workers", "--submit"]),
    ],
)
def test_mistakes(ask, words, more, about):
    code, out, err = ask(*words, *more)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in about)
