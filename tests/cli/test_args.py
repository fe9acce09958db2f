from __future__ import annotations

import sys
from pathlib import Path

import pytest

from raising import raises_about
from torchcaps.cli._args import one_name, options_to_overrides, program, read_options, split_words
from torchcaps.errors import ConfigError


@pytest.mark.parametrize(
    ("word", "is_override"),
    [
        ("digits", False),
        ("trainer.epochs=5", True),
        ("seed=1", True),
        ("trainer-epochs=5", True),
        ("data.options.path=my/images", True),
        ("data.options.path=a=b/c", True),
        ("data.options.path=lists/train.toml", True),
        ("lr=0.1/recipe.toml", False),
        ("runs/lr=0.1/recipe.toml", False),
        ("./lr=0.1", False),
        ("=5", True),
    ],
)
def test_paths_and_overrides(word: str, is_override: bool) -> None:
    assert split_words([word]) == (([], [word]) if is_override else ([word], []))


def test_existing_path_is_no_override(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_words(["lr=0.1"]).overrides == ["lr=0.1"]
    Path("lr=0.1").mkdir()
    assert split_words(["lr=0.1"]).names == ["lr=0.1"]


def test_one_name() -> None:
    assert one_name([], "recipe") == (None, [])
    assert one_name(["seed=1", "digits"], "recipe") == ("digits", ["seed=1"])
    with raises_about(ConfigError, "recipe:", "got digits, mnist"):
        one_name(["digits", "mnist"], "recipe")


def test_values_are_toml_or_strings() -> None:
    assert read_options(["a=1", "b=[2, 3]", "c=true", "d=my/folder=x"]) == {
        "a": 1,
        "b": [2, 3],
        "c": True,
        "d": "my/folder=x",
    }


@pytest.mark.parametrize("word", ["a", "=1"])
def test_option_without_key_or_value(word: str) -> None:
    with raises_about(ConfigError, "option:", f"got '{word}'"):
        read_options([word])


@pytest.mark.parametrize(
    ("found", "called", "expected"),
    [
        ("/usr/bin/torchcaps", ".venv/bin/torchcaps", "torchcaps"),
        (None, ".venv/bin/torchcaps", ".venv/bin/torchcaps"),
        (None, "torchcaps/__main__.py", "python -m torchcaps"),
    ],
)
def test_program(found, called, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr(sys, "argv", [called])
    assert program() == expected


def test_options_that_are_keys_of_a_recipe() -> None:
    words = ["digits", "--epochs", "5", "--batch-size=32", "--optim.lr", "0.1", "--iters", "1", "--quiet"]
    assert options_to_overrides(words, ["--quiet"]) == [
        "digits",
        "epochs=5",
        "batch_size=32",
        "optim.lr=0.1",
        "iters=1",
        "--quiet",
    ]
    # Neither an option nor a key: the parser of the command reports it.
    assert options_to_overrides(["--nosuch", "5", "-h"], []) == ["--nosuch", "5", "-h"]
    for words in (["--epochs"], ["--epochs", "--quiet"]):
        with raises_about(ConfigError, "--epochs"):
            options_to_overrides(words, ["--quiet"])
