"""`torchcaps data make`: write a data set in another form."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps._registry import check_options, nearest
from torchcaps.cli._args import program, read_options, split_words
from torchcaps.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

_OPTIONS = ("shard_size", "image_size", "channels", "val_fraction", "test_fraction")


def run(args: Namespace, out: Output) -> int:
    """Run `make shards FOLDER OUT [key=value]`."""
    words: list[str] = args.words
    if not words or words[0] != "shards":
        form = words[0] if words else ""
        raise UnknownNameError(f"unknown form '{form}' of data make{nearest(form, ['shards'])}")
    folders, overrides = split_words(words[1:])
    options = read_options(overrides)
    if len(folders) != 2:
        raise ConfigError(f"data make shards: expected FOLDER OUT, got {' '.join(folders) or 'no folders'}")
    check_options(options, _OPTIONS, "data make shards")
    from torchcaps.data import make_shards
    from torchcaps.data.readers.shard_files import read_index

    with out.progress("writing") as progress:
        path = make_shards(folders[0], folders[1], **options, progress=progress)
    index = read_index(path)
    splits = {split: (len(entries), sum(e["count"] for e in entries)) for split, entries in index["splits"].items()}
    out.document({"path": path, **index})
    out.say(f"{sum(count for _, count in splits.values()):,} images in {path}", style="bold")
    out.table(("split", "shards", "images"), [(split, *counts) for split, counts in splits.items()])
    out.say(f"try next: {program()} train folder data.name=shards data.options.path={path}")
    return 0
