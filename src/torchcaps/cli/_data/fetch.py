"""`torchcaps data fetch`: bring a data set into the user's cache."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output


def run(args: Namespace, out: Output) -> int:
    """Fetch each data set that is named."""
    if not args.words:
        raise ConfigError("data fetch: expected the name of a data set, got none; `torchcaps data` lists them")
    from torchcaps.data import DATASETS, fetch_data

    # An unknown name is told before anything is fetched.
    sets = {name: DATASETS[name] for name in args.words}
    came = {}
    for name in sets:
        came[name] = fetch_data(name, out.progress)
        if came[name]:
            out.say(f"{name}: {', '.join(came[name])}")
        else:
            out.say(f"{name}: nothing to fetch")
    out.document(came)
    return 0
