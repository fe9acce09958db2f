from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from formats import cifar_binary, pixels
from torchcaps.data import DATASETS


def test_list(ask, ask_json) -> None:
    entries = {entry["name"]: entry for entry in ask_json("data")}
    assert sorted(entries) == DATASETS.names()
    assert entries["folder"]["options"][0] == "path"
    assert entries["digits"]["local"] == "not needed"
    assert ask("data") == ask("data", "list")
    assert entries["digits"]["description"] in ask("data")[1]


def test_show(ask, ask_json, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = ask_json("data", "show", "digits", "--split", "test")
    assert summary["classes"] == {str(digit): 100 for digit in range(10)}
    assert summary["figure"] == "digits-test.png"
    with Image.open(tmp_path / "digits-test.png") as image:
        assert image.width > 1000
    code, out, _ = ask("data", "show", "digits", "--split", "test")
    assert code == 0
    assert "digits, test: 1,000 images" in out
    assert "28x28, 1 channel\n" in out
    assert "0 to 255, mean" in out
    assert out.endswith("digits-test.png\n")


def test_show_options(pictures: Path, ask_json, tmp_path: Path) -> None:
    words = (f"path={pictures}", "image_size=24", "--split", "test", "--out", tmp_path / "new" / "grid.svg")
    summary = ask_json("data", "show", "folder", *words)
    assert (tmp_path / "new" / "grid.svg").is_file()
    assert summary["image_shape"] == [1, 24, 24]
    assert set(summary["classes"].values()) == {2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "unknown action 'shwo' of torchcaps data; did you mean 'show'?"),
        (["show"], "data show: expected the name of a data set (`torchcaps data` lists them)"),
        (["show", "path=x"], "data show: expected the name of a data set (`torchcaps data` lists them)"),
        (
            ["list", "digits"],
            "unexpected argument 'digits' after list (`torchcaps data show digits` shows it)",
        ),
        (["show", "digit"], "unknown data set 'digit'; did you mean 'digits'?"),
        (["show", "folder"], "path: expected a value for data set 'folder', but it is not set (path=VALUE)"),
        (["show", "digits", "more"], "option: expected key=value, got 'more'"),
        (["show", "digits", "--out", "x.txt"], "--out: expected a file name ending in .png, .pdf, .svg, got 'x.txt'"),
        (["verify", "--out", "x.png"], "--out: expected only with show, got it with verify"),
        (["download"], "data download: expected the name of a data set (`torchcaps data` lists them)"),
        (["download", "digits", "mnits"], "unknown data set 'mnits'; did you mean 'mnist'?"),
        (["verify", "mnits"], "unknown data set 'mnits'; did you mean 'mnist'?"),
    ],
)
def test_errors_name_the_argument(words: list[str], message: str, ask) -> None:
    assert ask("data", *words) == (2, "", f"{message}\n")


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    monkeypatch.setattr("torchcaps.data._sources._cache", lambda: tmp_path / "cache")
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def write_batches(own_data: Path, *names: str, content: bytes | None = None) -> None:
    (own_data / "cifar-10-batches-bin").mkdir(exist_ok=True)
    for name in names:
        path = own_data / "cifar-10-batches-bin" / f"{name}.bin"
        path.write_bytes(content if content is not None else cifar_binary(pixels(1, 3, 32, 32), [1]))


def test_local_files(own_data: Path, ask_json) -> None:
    def local() -> str:
        return {entry["name"]: entry["local"] for entry in ask_json("data")}["cifar10"]

    assert local() == "none"
    write_batches(own_data, "data_batch_1", "test_batch")
    assert local() == "2 of 6"
    write_batches(own_data, *(f"data_batch_{number}" for number in range(1, 6)))
    assert local() == "all"


def test_verify(own_data: Path, ask, ask_json) -> None:
    assert ask("data", "verify")[:2] == (0, "no local files; `torchcaps data download NAME` downloads a data set\n")
    write_batches(own_data, "data_batch_1")
    code, out, _ = ask("data", "verify")
    assert code == 0
    assert "unverified" in out
    assert "torchcaps data download cifar10" in out
    states = {entry["file"]: entry for entry in ask_json("data", "verify", "cifar10")}
    assert states["data_batch_1.bin"]["status"] == "unverified"
    assert states["test_batch.bin"]["status"] == "missing"
    # Without a name, only data sets with local files are listed.
    assert {entry["data"] for entry in ask_json("data", "verify")} == {"cifar10"}


def test_verify_broken(own_data: Path, ask) -> None:
    write_batches(own_data, "test_batch", content=b"damaged")
    code, out, _ = ask("data", "verify")
    assert code == 2
    assert "broken" in out
    code, out, err = ask("data", "verify", "--json")
    assert (code, err) == (2, "")
    (broken,) = [entry for entry in json.loads(out) if entry["status"] == "broken"]
    assert broken["remedy"].endswith("remove it, then torchcaps data download cifar10")


def test_download(ask, ask_json, monkeypatch) -> None:
    monkeypatch.setattr("torchcaps.data.download_data", lambda name, watch: ["a", "b"] if name == "mnist" else [])
    assert ask("data", "download", "mnist", "digits") == (0, "mnist: a, b\ndigits: nothing to download\n", "")
    assert ask_json("data", "download", "mnist") == {"mnist": ["a", "b"]}
