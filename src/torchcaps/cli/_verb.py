"""What a verb is, and the parser that reads its arguments."""

from __future__ import annotations

import argparse
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from torchcaps._registry import nearest
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


# The exit code after Ctrl-C, as shells have it.
STOPPED = 130


class Parser(argparse.ArgumentParser):
    """A parser that raises what a user got wrong instead of ending the process."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=layout,
            add_help=False,
            allow_abbrev=False,
        )
        self._positionals.title = "arguments"

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


@dataclass(frozen=True)
class Verb:
    """Something that `torchcaps` does: the words that explain it, the arguments it takes, and the function.

    `configure` adds the arguments to a parser; `run` does the work and gives the exit code.
    """

    name: str
    summary: str
    description: str
    examples: Sequence[tuple[str, str]]
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Namespace, Output], int]

    def parser(self) -> Parser:
        """The parser of this verb, with the options that all verbs share."""
        width = max(len(command) for command, _ in self.examples)
        examples = "\n".join(f"  {command:<{width}}  # {purpose}" for command, purpose in self.examples)
        parser = Parser(
            f"torchcaps {self.name}",
            description=textwrap.fill(self.description, 88),
            epilog=f"examples:\n{examples}",
        )
        self.configure(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document instead of words and tables")
        parser.add_argument("--debug", action="store_true", help="show where an unexpected error came from")
        parser.add_argument("-h", "--help", action="store_true", help="show this text")
        return parser

    def parse(self, words: Sequence[str]) -> Namespace:
        """Read the words after the verb; options and arguments may come in any order."""
        parser = self.parser()
        # Before anything is missed or refused: whoever asks for help has not given the rest yet.
        if "-h" in words or "--help" in words:
            parser.print_help(sys.stdout)
            return Namespace(help=True, json=False, debug=False)
        args, unknown = parser.parse_known_intermixed_args(words)
        for word in unknown:
            if word.startswith("-"):
                known = [option for action in parser._actions for option in action.option_strings]
                name = word.partition("=")[0]
                raise ConfigError(f"unknown option '{name}' of {parser.prog}{nearest(name, known)}")
            raise ConfigError(f"unexpected argument '{word}'; see `{parser.prog} --help`")
        return args
