"""`torchcaps completion`: a script with which a shell completes commands, options and names."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchcaps.cli._verb import Verb

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

SHELLS = ("bash", "zsh", "tcsh")
# What stands for a file or a folder in the help of the commands.
_FILES = ("RUN", "IMAGE", "FILE")
_FOLDERS = ("DIR",)


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def _run(args: Namespace, out: Output) -> int:
    import shtab

    script = shtab.complete(_whole_parser(), shell=args.shell)
    out.document({"shell": args.shell, "script": script})
    if not out.as_json:
        # The exact text, without colours.
        print(script)
    return 0


def _whole_parser() -> ArgumentParser:
    """Return one parser of the whole command line, with the names that its arguments can have as choices."""
    from torchcaps.cli._main import VERBS

    parser = ArgumentParser("torchcaps", add_help=False)
    parser.add_argument("-h", "--help", action="store_true", help="list the commands")
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    names = _names()
    for name, verb in VERBS.items():
        inner = commands.add_parser(name, help=verb.summary, parents=[verb.parser()], add_help=False)
        for action in inner._actions:
            _describe(action, names.get((name, action.dest)) or names.get(("", action.dest)))
    commands.add_parser("help", help="explain a command", add_help=False).add_argument("command", choices=list(VERBS))
    return parser


def _describe(action: Any, names: Sequence[str] | None) -> None:
    """Say what completes an argument: names, files or folders. Shells fall back to files where no name fits."""
    import shtab

    place = str(action.metavar).partition(" ")[0]
    if names is not None:
        action.choices = names
    elif place in _FILES:
        action.complete = shtab.FILE
    elif place in _FOLDERS:
        action.complete = shtab.DIRECTORY


def _names() -> dict[tuple[str, str], Sequence[str]]:
    """Return the names that an argument of a command can have; an empty command stands for all."""
    import torchcaps as tc
    from torchcaps.bench import CASES
    from torchcaps.cli.data import ACTIONS
    from torchcaps.experiments import list_reproductions
    from torchcaps.report.registry import ENTRIES
    from torchcaps.train import list_recipes

    recipes = list_recipes()
    return {
        ("train", "words"): recipes,
        ("compare", "words"): recipes,
        ("sweep", "words"): recipes,
        ("recipes", "name"): recipes,
        ("reproduce", "words"): list_reproductions(),
        ("models", "name"): tc.list_models(),
        ("routers", "name"): tc.list_routers(),
        ("data", "action"): list(ACTIONS),
        ("data", "words"): tc.list_data(),
        ("eval", "data"): tc.list_data(),
        ("bench", "names"): CASES.names(),
        ("show", "figure"): [entry.name for entry in ENTRIES],
        ("", "pretrained"): tc.list_pretrained(),
    }


VERB = Verb(
    name="completion",
    summary="print a script that completes commands in your shell",
    description="Prints a script for bash, zsh or tcsh. A shell that has read it completes commands, options, and the "
    "names of recipes, models, routers, data sets, benchmarks and figures with the Tab key. Names that packages of "
    "your own register are those of the moment at which the script is made. Needs shtab: pip install "
    "'torchcaps[train]'.",
    examples=(
        ("torchcaps completion bash > ~/.torchcaps-completion", "for bash; `source` it in ~/.bashrc"),
        ("torchcaps completion zsh > ~/.zfunc/_torchcaps", "for zsh, in a folder of its fpath"),
    ),
    configure=_configure,
    run=_run,
)
