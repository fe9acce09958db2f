from __future__ import annotations

import pytest

from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.train._shipped import check_none, parse_table, read_table, shipped_names


@pytest.mark.parametrize("kind", ["recipe", "reproduction"])
def test_names_are_those_of_the_files(kind):
    assert shipped_names(kind)
    assert all(read_table(kind, name)["name"] == name for name in shipped_names(kind))


def test_unknown_names_files_that_are_missing_and_other_text(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown reproduction 'multimnists'; did you mean 'multimnist'\?"):
        read_table("reproduction", "multimnists")
    with pytest.raises(ConfigError, match=r"reproduction: expected a TOML file, got '.*x\.toml' \(No such file"):
        read_table("reproduction", tmp_path / "x.toml")
    with pytest.raises(ConfigError, match=r"^here: expected TOML, got something else \("):
        parse_table("a = = b", "here")


def test_problems_stand_together():
    check_none([], "here")
    with pytest.raises(ConfigError, match=r"^here: one$"):
        check_none(["one"], "here")
    with pytest.raises(ConfigError, match=r"^here: \n  one\n  two$"):
        check_none(["one", "two"], "here")
