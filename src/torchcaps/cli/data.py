"""`torchcaps data`: the data sets that can be asked for by name."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torchcaps._registry import nearest
from torchcaps.cli._verb import Verb
from torchcaps.cli._words import read_options
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", metavar="ACTION", help="list (the default) or show")
    parser.add_argument("words", nargs="*", metavar="NAME key=value", help="a data set, and options of it")
    parser.add_argument(
        "--split", default="train", help="which part to show: train, val, test or train+val (default: train)"
    )


def _list(words: Sequence[str], split: str, out: Output) -> None:
    if words:
        raise ConfigError(f"unexpected argument '{words[0]}' after list; `torchcaps data show {words[0]}` says more")
    from torchcaps.data import DATASETS

    entries = [
        {
            "name": name,
            "description": DATASETS[name].description,
            "source": DATASETS[name].source,
            "licence": DATASETS[name].licence,
            "options": list(DATASETS[name].options),
        }
        for name in DATASETS
    ]
    out.document(entries)
    out.table(("data", "description", "licence"), [(e["name"], e["description"], e["licence"]) for e in entries])


def _show(words: Sequence[str], split: str, out: Output) -> None:
    if not words or "=" in words[0]:
        raise ConfigError("data show: expected the name of a data set, got none; `torchcaps data` lists them")
    from torchcaps.data import describe, load_data

    summary = describe(load_data(words[0], split, **read_options(words[1:])))
    out.document(summary)
    channels, height, width = summary["image_shape"]
    pixels = summary["pixels"]
    out.say(f"{summary['name']}, {summary['split']}: {summary['images']:,} images", style="bold")
    out.facts(
        {
            "size": f"{height}x{width}, {channels} channel{'s' if channels > 1 else ''}",
            "pixels": f"{pixels['min']} to {pixels['max']}, mean {pixels['mean']}",
            "memory": f"{summary['megabytes']} MB",
            "origin": summary["origin"],
        }
    )
    out.table(("class", "images"), list(summary["classes"].items()))


ACTIONS: dict[str, Callable[[Sequence[str], str, Output], None]] = {"list": _list, "show": _show}


def _run(args: Namespace, out: Output) -> int:
    if args.action not in ACTIONS:
        raise UnknownNameError(f"unknown action '{args.action}' of torchcaps data{nearest(args.action, ACTIONS)}")
    ACTIONS[args.action](args.words, args.split, out)
    return 0


VERB = Verb(
    name="data",
    summary="list the data sets, or count what is in one",
    description="Lists the data sets that can be trained on by name. `show` loads one, which also checks its "
    "files, and counts its images per class. Files are looked for in the folder that the environment "
    "variable TORCHCAPS_DATA names, then in the user's cache.",
    examples=(
        ("torchcaps data", "all of them"),
        ("torchcaps data show digits --split test", "how many of each class"),
        ("torchcaps data show folder path=my/pictures", "whether your own images can be trained on"),
    ),
    configure=_configure,
    run=_run,
)
