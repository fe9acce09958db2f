"""Entry point of the command line."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence

from torchcaps import __version__
from torchcaps._extras import explain_missing
from torchcaps._registry import nearest
from torchcaps.cli import (
    bench,
    claims,
    compare,
    completion,
    data,
    eval,
    explain,
    export,
    info,
    models,
    play,
    predict,
    recipes,
    reproduce,
    routers,
    serve,
    show,
    sweep,
    train,
)
from torchcaps.cli._logging import log_to_stderr
from torchcaps.cli._verb import STOPPED, Verb
from torchcaps.errors import ConfigError, TorchcapsError
from torchcaps.plugins import load_plugins

VERBS: dict[str, Verb] = {
    module.VERB.name: module.VERB
    for module in (
        train,
        eval,
        predict,
        explain,
        export,
        serve,
        show,
        play,
        compare,
        sweep,
        reproduce,
        claims,
        models,
        routers,
        data,
        recipes,
        bench,
        info,
        completion,
    )
}

# A disk that is full, a limit on files, a folder that is read-only.
_DISK = {getattr(errno, name, None) for name in ("ENOSPC", "EFBIG", "EDQUOT", "EROFS", "EACCES", "EPERM")}
MISTAKE, FAILURE, BROKEN_PIPE = 2, 1, 141
# Options of every command.
_COMMON = ("--json", "--debug", "-q", "--quiet", "--log-level", "--import")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments. Default: those of the process.

    Returns:
        The exit code. 0: success. 1: unexpected error. 2: invalid argument. 130: stopped by Ctrl-C. 141: the reader of
        the output closed the pipe.

    Example:
        >>> main(["--version"]) == main(["-V"]) == 0
        torchcaps 0.1.0
        torchcaps 0.1.0
        True
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        code = _run(words)
        # A closed pipe is reported only when the output is flushed.
        sys.stdout.flush()
        return code
    except TorchcapsError as error:
        print(error, file=sys.stderr)
        return MISTAKE
    except BrokenPipeError:
        # Otherwise Python reports the closed pipe again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK and not debug:
            print(f"file: expected room and permission to write, got an error ({error})", file=sys.stderr)
            return MISTAKE
        if debug:
            raise
        message = " ".join(str(error).split()) or "no message"
        print(f"unexpected {type(error).__name__}: {message}; --debug shows the traceback", file=sys.stderr)
        return FAILURE


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"torchcaps {__version__}")
        return 0
    if words[0] == "help":
        # `torchcaps help train` is `torchcaps train --help`.
        return _run([*words[1:2], "--help"])
    name, *rest = words
    if name.startswith("-"):
        hint = "put it after the command" if name in _COMMON else "see `torchcaps --help`"
        raise ConfigError(f"unknown option '{name}' before the command; {hint}")
    if name not in VERBS:
        raise ConfigError(f"unknown command '{name}'{nearest(name, VERBS)}")
    verb = VERBS[name]
    args: Namespace = verb.parse(rest)
    if args.help:
        return 0
    from torchcaps.cli._output import Output

    with warnings.catch_warnings(), log_to_stderr(args.log_level), explain_missing():
        # One line, without the place in the source code.
        warnings.showwarning = lambda message, *rest: args.quiet or print(f"note: {message}", file=sys.stderr)
        if args.modules:
            # As `python -m` does: a module of your own is often in the working folder.
            sys.path.insert(0, "")
        load_plugins(args.modules)
        return verb.run(args, Output(as_json=args.json, quiet=args.quiet))


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {verb.summary}" for name, verb in VERBS.items())
    return f"""usage: torchcaps COMMAND [...]

Train, evaluate and inspect capsule networks.

commands:
{verbs}

`torchcaps help COMMAND` or `torchcaps COMMAND --help` explains a command, with examples.
Every command takes --json (one JSON document on stdout), -q (no progress and no notes), --log-level LEVEL,
--import MODULE (models of your own) and --debug (tracebacks). `torchcaps --version` (-V) prints the version.

environment:
  TORCHCAPS_DATA     folder with data sets (default: the user's cache folder)
  TORCHCAPS_CPU      instruction set of the kernels: portable, avx2 or avx512 (default: the best available)
  TORCHCAPS_LOG      messages on stderr: debug, info, warning or error (default: warning)
  TORCHCAPS_IMPORT   modules to import first, separated by commas
  TORCHCAPS_API_KEY  key that requests to `torchcaps serve` must carry
  NO_COLOR           no colours

exit codes: 0 success, 1 unexpected error, 2 invalid argument or input, 3 some files could not be read, 130 Ctrl-C,
            141 closed pipe, 143 SIGTERM

examples:
  torchcaps train                                       # train a small network on digits, write a report
  torchcaps train folder data.options.path=my/images    # train on a folder of your own images
  torchcaps predict runs/NAME my/digit.png              # classify an image with the trained network"""
