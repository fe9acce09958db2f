"""From the words on the command line to an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence

from torchcaps import __version__
from torchcaps._registry import nearest
from torchcaps.cli import (
    bench,
    compare,
    data,
    eval,
    info,
    models,
    play,
    predict,
    recipes,
    reproduce,
    routers,
    show,
    train,
)
from torchcaps.cli._verb import STOPPED, Verb
from torchcaps.errors import ConfigError, TorchcapsError

VERBS: dict[str, Verb] = {
    module.VERB.name: module.VERB
    for module in (train, eval, predict, show, play, compare, reproduce, models, routers, data, recipes, bench, info)
}

MISTAKE, FAILURE, BROKEN_PIPE = 2, 1, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run `torchcaps` with these words and give its exit code.

    0: done. 2: something that was given cannot be used; the message says what. 1: an unexpected error. 130: stopped
    by Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        code = _run(words)
        # A reader that went away shows only when the last words are sent.
        sys.stdout.flush()
        return code
    except TorchcapsError as error:
        print(error, file=sys.stderr)
        return MISTAKE
    except BrokenPipeError:
        # Python would complain once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        if debug:
            raise
        message = " ".join(str(error).split()) or "no message"
        print(f"unexpected {type(error).__name__}: {message}; --debug shows where it came from", file=sys.stderr)
        return FAILURE


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(f"torchcaps {__version__}")
        return 0
    name, *rest = words
    if name.startswith("-"):
        hint = "put it after the verb" if name in ("--json", "--debug") else "see `torchcaps --help`"
        raise ConfigError(f"unknown option '{name}' before the verb; {hint}")
    if name not in VERBS:
        raise ConfigError(f"unknown verb '{name}'{nearest(name, VERBS)}")
    verb = VERBS[name]
    args: Namespace = verb.parse(rest)
    if args.help:
        return 0
    from torchcaps.cli._output import Output

    with warnings.catch_warnings():
        # In one line, without the place in the code that a user of the command line cannot do anything about.
        warnings.showwarning = lambda message, *rest: print(f"note: {message}", file=sys.stderr)
        return verb.run(args, Output(as_json=args.json, quiet=getattr(args, "quiet", False)))


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.summary}" for name, verb in VERBS.items())
    return f"""usage: torchcaps VERB [...]

torchcaps trains capsule networks, tests them and shows what they learned.

verbs:
{verbs}

`torchcaps VERB --help` explains a verb with examples. All take --json for machines and --debug.
`torchcaps --version` says which version this is.

examples:
  torchcaps train                                          # a small network on digits, with a report
  torchcaps train folder data.options.path=my/pictures     # on a folder of your own images
  torchcaps predict runs/NAME my/digit.png                 # ask the trained network"""
