"""`torchcaps play`: a page where one sees a capsule network think."""

from __future__ import annotations

import importlib.util
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from torchcaps.cli._verb import Verb
from torchcaps.errors import ConfigError

if TYPE_CHECKING:
    from torchcaps.cli._output import Output

NEEDED = ("fastapi", "uvicorn")
PORT = 8017


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the folder of a run (default: the network for digits that comes along)"
    )
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="where to listen (default: this machine only)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def _run(args: Namespace, out: Output) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"play: expected {' and '.join(missing)} to be installed; get it with: pip install 'torchcaps[play]'"
        )
    import torch

    from torchcaps.playground import address_of, create_app, listen, open_network, serve

    # A port that is taken shows before a network is trained.
    with listen(args.host, args.port) as listener:
        with out.stdout_kept():
            network = open_network(args.run, progress=out.shows_progress, say=out.say)
        # A batch of one gains nothing from a second thread, and a page should leave the machine to its user.
        torch.set_num_threads(1)
        network.warm_up()
        app, url = create_app(network, host=args.host), address_of(listener, args.host)
        out.document({"url": url, "network": network.name, "about": network.about})
        out.say(f"{network.name}: {network.about}")
        out.say(f"playground at {url}   (Ctrl-C stops it)", style="bold")
        # Whoever reads the address through a pipe waits for it.
        sys.stdout.flush()
        serve(app, listener, open_at=None if args.no_browser else url)
    return 0


VERB = Verb(
    name="play",
    summary="open a page where one sees a capsule network think",
    description="Opens a page on this machine: draw a digit and watch the class capsules answer, move a capsule's "
    "dimensions with sliders, step through routing by agreement. Without a run it plays the network for digits that "
    "comes along; what does not come along, as the CNN beside it, is trained once (a minute or two) and kept.",
    examples=(
        ("torchcaps play", "the network for digits"),
        ("torchcaps play runs/NAME", "a network that you trained"),
        ("torchcaps play --no-browser --port 0", "only print the address, on any free port"),
    ),
    configure=_configure,
    run=_run,
)
