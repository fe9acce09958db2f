from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.config import bundled_names, parse_toml, raise_problems, read_toml
from torchcaps.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize("kind", ["recipe", "reproduction"])
def test_names_match_files(kind):
    assert bundled_names(kind)
    assert all(read_toml(kind, name)["name"] == name for name in bundled_names(kind))


def test_unknown_names_and_missing_files(tmp_path):
    with raises_about(UnknownNameError, "reproduction", "'multimnists'", "'multimnist'"):
        read_toml("reproduction", "multimnists")
    with raises_about(ConfigError, "reproduction:", tmp_path / "x.toml"):
        read_toml("reproduction", tmp_path / "x.toml")
    with raises_about(ConfigError, "here:", "TOML"):
        parse_toml("a = = b", "here")


def test_problems_are_raised_together():
    raise_problems([], "here")
    with pytest.raises(ConfigError, match=r"^here: one$"):
        raise_problems(["one"], "here")
    with pytest.raises(ConfigError, match=r"^here: \n  one\n  two$"):
        raise_problems(["one", "two"], "here")
