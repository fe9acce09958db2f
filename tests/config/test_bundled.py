from __future__ import annotations

import pytest

from torchcaps.config import bundled_names, parse_toml, raise_problems, read_toml
from torchcaps.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize("kind", ["recipe", "reproduction"])
def test_names_match_files(kind):
    assert bundled_names(kind)
    assert all(read_toml(kind, name)["name"] == name for name in bundled_names(kind))


def test_unknown_names_and_missing_files(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown reproduction 'multimnists'; did you mean 'multimnist'\?"):
        read_toml("reproduction", "multimnists")
    with pytest.raises(ConfigError, match=r"reproduction: expected a TOML file, got '.*x\.toml' \(No such file"):
        read_toml("reproduction", tmp_path / "x.toml")
    with pytest.raises(ConfigError, match=r"^here: expected TOML, got something else \("):
        parse_toml("a = = b", "here")


def test_problems_stand_together():
    raise_problems([], "here")
    with pytest.raises(ConfigError, match=r"^here: one$"):
        raise_problems(["one"], "here")
    with pytest.raises(ConfigError, match=r"^here: \n  one\n  two$"):
        raise_problems(["one", "two"], "here")
