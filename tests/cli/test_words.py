from __future__ import annotations

import pytest

from torchcaps.cli._words import read_options
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
