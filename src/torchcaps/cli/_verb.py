"""Commands of the command line, and the parser of their arguments."""

from __future__ import annotations

import argparse
import difflib
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from torchcaps.cli._args import key_options, options_to_overrides
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


# The exit code after Ctrl-C, as shells have it.
STOPPED = 130
LEVELS = ("debug", "info", "warning", "error")


class Parser(argparse.ArgumentParser):
    """Parser that raises a ConfigError instead of ending the process."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            formatter_class=layout,
            add_help=False,
            allow_abbrev=False,
            # An option of every command replaces one of the same name.
            conflict_handler="resolve",
        )
        self._positionals.title = "arguments"

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def similar_option(name: str, known: Sequence[str], prog: str) -> str:
    """Return a hint with the most similar option, or where to find the list if none is similar.

    Args:
        name: Unknown option.
        known: Known options.
        prog: Command whose help lists the options.

    Returns:
        The end of an error message.

    Example:
        >>> similar_option("--jsn", ["--json", "--out"], "torchcaps eval")
        "; did you mean '--json'?"
        >>> similar_option("--nosuch", ["--json", "--out"], "torchcaps eval")
        '; see `torchcaps eval --help`'
    """
    # Dashes are part of every option: with them, short unrelated names look similar.
    plain = {option.lstrip("-"): option for option in known}
    close = difflib.get_close_matches(name.lstrip("-"), plain, n=1, cutoff=0.65)
    return f"; did you mean '{plain[close[0]]}'?" if close else f"; see `{prog} --help`"


@dataclass(frozen=True)
class Verb:
    """A command: its help text, its arguments and its function.

    Args:
        name: Name on the command line.
        summary: One line for `torchcaps --help`.
        description: Paragraph for `torchcaps NAME --help`.
        examples: Commands and what they do.
        configure: Function that adds the arguments to a parser.
        run: Function that does the work and returns the exit code.
        takes_overrides: Whether it takes key=value overrides of a recipe; `--epochs 5` is then `epochs=5`.
    """

    name: str
    summary: str
    description: str
    examples: Sequence[tuple[str, str]]
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[Namespace, Output], int]
    takes_overrides: bool = False

    def parser(self) -> Parser:
        """Return the parser of this command, with the options that all commands share."""
        width = max(len(command) for command, _ in self.examples)
        examples = "\n".join(f"  {command:<{width}}  # {purpose}" for command, purpose in self.examples)
        parser = Parser(
            f"torchcaps {self.name}",
            description=textwrap.fill(self.description, 88),
            epilog=f"examples:\n{examples}",
        )
        self.configure(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
        parser.add_argument("-q", "--quiet", action="store_true", help="no progress and no notes")
        parser.add_argument(
            "--log-level", choices=LEVELS, help="messages on stderr (default: TORCHCAPS_LOG, or warning)"
        )
        parser.add_argument(
            "--import",
            dest="modules",
            action="append",
            default=[],
            metavar="MODULE",
            help="import a Python module first, which registers models or routers of your own",
        )
        parser.add_argument("--debug", action="store_true", help="show the traceback of an unexpected error")
        parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
        return parser

    def parse(self, words: Sequence[str]) -> Namespace:
        """Parse the arguments of the command; options and positional arguments may come in any order."""
        parser = self.parser()
        # Before parsing: with --help the required arguments may be missing.
        if "-h" in words or "--help" in words:
            parser.print_help(sys.stdout)
            return Namespace(help=True, json=False, debug=False)
        known = [option for action in parser._actions for option in action.option_strings]
        if self.takes_overrides:
            words = options_to_overrides(words, known)
        args, unknown = parser.parse_known_intermixed_args(words)
        for word in unknown:
            if word.startswith("-"):
                name = word.partition("=")[0]
                if self.takes_overrides:
                    known += key_options()
                raise ConfigError(f"unknown option '{name}' of {parser.prog}{similar_option(name, known, parser.prog)}")
            raise ConfigError(f"unexpected argument '{word}'; see `{parser.prog} --help`")
        return args
