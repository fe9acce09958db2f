from __future__ import annotations

from pathlib import Path

import pytest

from torchcaps.data import DATASETS


def test_all_data_sets_are_listed(ask, ask_json) -> None:
    entries = {entry["name"]: entry for entry in ask_json("data")}
    assert sorted(entries) == DATASETS.names()
    assert entries["folder"]["options"][0] == "path"
    assert ask("data") == ask("data", "list")
    assert entries["digits"]["description"] in ask("data")[1]


def test_a_part_is_counted(ask, ask_json) -> None:
    summary = ask_json("data", "show", "digits", "--split", "test")
    assert summary["classes"] == {str(digit): 100 for digit in range(10)}
    code, out, _ = ask("data", "show", "digits", "--split", "test")
    assert code == 0
    assert "digits, test: 1,000 images" in out
    assert "28x28, 1 channel\n" in out
    assert "0 to 255, mean" in out


def test_options_reach_the_data_set(pictures: Path, ask_json) -> None:
    summary = ask_json("data", "show", "folder", f"path={pictures}", "image_size=24", "--split", "test")
    assert summary["image_shape"] == [1, 24, 24]
    assert set(summary["classes"].values()) == {2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shwo"], "unknown action 'shwo' of torchcaps data; did you mean 'show'?"),
        (["show"], "data show: expected the name of a data set, got none; `torchcaps data` lists them"),
        (["show", "path=x"], "data show: expected the name of a data set, got none; `torchcaps data` lists them"),
        (["list", "digits"], "unexpected argument 'digits' after list; `torchcaps data show digits` says more"),
        (["show", "digit"], "unknown data set 'digit'; did you mean 'digits'?"),
        (["show", "folder"], "path: expected a value for data set 'folder', got none"),
        (["show", "digits", "more"], "option: expected key=value, got 'more'"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, ask) -> None:
    assert ask("data", *words) == (2, "", f"{message}\n")
