"""`torchcaps data download`: download data sets and pretrained weights to the user's cache."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def run(args: Namespace, out: Output) -> int:
    """Download each named data set, and the weights of each name that starts with `weights/`."""
    if not args.words:
        raise ConfigError("data download: expected the name of a data set (`torchcaps data` lists them)")
    from torchcaps.data import DATASETS, download_data
    from torchcaps.evaluation import download_weights
    from torchcaps.models import pretrained_card
    from torchcaps.models.pretrained import CACHE

    # An unknown name is an error before anything is downloaded.
    names = list(dict.fromkeys(args.words))
    weights = {name: name.removeprefix(f"{CACHE}/") for name in names if name.startswith(f"{CACHE}/")}
    for name in names:
        _ = pretrained_card(weights[name]) if name in weights else DATASETS[name]
    downloaded = {}
    for name in names:
        if name in weights:
            before = pretrained_card(weights[name]).weights.is_file()
            downloaded[name] = [] if before else [download_weights(weights[name]).name]
        else:
            downloaded[name] = download_data(name, out.progress)
        out.say(f"{name}: {', '.join(downloaded[name]) or 'nothing to download'}")
    out.document(downloaded)
    return 0
