"""`torchcaps data make`: write data in a form that is better to train from."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps._registry import check_options, nearest
from torchcaps.cli._words import program, read_options
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

_OPTIONS = ("shard_size", "image_size", "channels", "val_fraction", "test_fraction")


def run(args: Namespace, out: Output) -> int:
    """`make shards FOLDER OUT [key=value]`."""
    words: list[str] = args.words
    if not words or words[0] != "shards":
        what = words[0] if words else ""
        raise UnknownNameError(f"unknown thing to make '{what}'{nearest(what, ['shards'])}")
    folders = [word for word in words[1:] if "=" not in word]
    options = read_options([word for word in words[1:] if "=" in word])
    if len(folders) != 2:
        raise ConfigError(f"data make shards: expected a folder of images and a new folder, got {len(folders)} folders")
    check_options(options, _OPTIONS, "data make shards")
    from torchcaps.data import make_shards
    from torchcaps.data._shard_files import read_index

    with out.progress("writing") as progress:
        path = make_shards(folders[0], folders[1], **options, progress=progress)
    index = read_index(path)
    parts = {part: (len(entries), sum(e["count"] for e in entries)) for part, entries in index["parts"].items()}
    out.document({"path": path, **index})
    out.say(f"{sum(count for _, count in parts.values()):,} images in {path}", style="bold")
    out.table(("part", "shards", "images"), [(part, *counts) for part, counts in parts.items()])
    out.say(f"try next: {program()} train folder data.name=shards data.options.path={path}")
    return 0
