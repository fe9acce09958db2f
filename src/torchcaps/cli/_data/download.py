"""`torchcaps data download`: download the files of a data set to the user's cache."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def run(args: Namespace, out: Output) -> int:
    """Download each named data set."""
    if not args.words:
        raise ConfigError("data download: expected the name of a data set, got none (`torchcaps data` lists them)")
    from torchcaps.data import DATASETS, download_data

    # An unknown name is an error before anything is downloaded.
    names = list({name: DATASETS[name] for name in args.words})
    downloaded = {}
    for name in names:
        downloaded[name] = download_data(name, out.progress)
        out.say(f"{name}: {', '.join(downloaded[name]) or 'nothing to download'}")
    out.document(downloaded)
    return 0
