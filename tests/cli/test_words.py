from __future__ import annotations

import sys

import pytest

from torchcaps.cli._words import program, read_options
from torchcaps.errors import ConfigError


def test_values_are_read_as_toml_or_as_strings() -> None:
    assert read_options(["a=1", "b=[2, 3]", "c=true", "d=my/folder=x"]) == {
        "a": 1,
        "b": [2, 3],
        "c": True,
        "d": "my/folder=x",
    }


@pytest.mark.parametrize("word", ["a", "=1"])
def test_a_word_without_key_or_value_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=rf"^option: expected key=value, got '{word}'$"):
        read_options([word])


@pytest.mark.parametrize(
    ("found", "called", "expected"),
    [
        ("/usr/bin/torchcaps", ".venv/bin/torchcaps", "torchcaps"),
        (None, ".venv/bin/torchcaps", ".venv/bin/torchcaps"),
        (None, "torchcaps/__main__.py", "python -m torchcaps"),
    ],
)
def test_what_to_type_next(found, called, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: found)
    monkeypatch.setattr(sys, "argv", [called])
    assert program() == expected
