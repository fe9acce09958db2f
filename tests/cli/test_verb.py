from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError


def make() -> Verb:
    def configure(parser) -> None:
        parser.add_argument("words", nargs="*")
        parser.add_argument("--loud", action="store_true")

    return Verb("sing", "sings", "It sings.", (("torchcaps sing", "a song"),), configure, lambda args, out: 0)


def test_options_and_arguments_in_any_order() -> None:
    args = make().parse(["a", "--loud", "b=1", "--json"])
    assert (args.words, args.loud, args.json, args.debug) == (["a", "b=1"], True, True, False)


def test_abbreviations_are_not_guessed() -> None:
    with raises_about(ConfigError, "unknown option '--lou'", "--loud"):
        make().parse(["--lou"])


def test_help_wins_over_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert make().parse(["--nonsense", "-h"]).help
    assert "examples:\n  torchcaps sing  # a song" in capsys.readouterr().out
