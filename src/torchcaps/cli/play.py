"""`torchcaps play`: a web page that shows how a capsule network works."""

from __future__ import annotations

import importlib.util
import secrets
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
        "run", nargs="?", metavar="RUN", help="folder of a run (default: the pretrained network for digits)"
    )
    parser.add_argument(
        "--pretrained", metavar="NAME", help="bundled weights instead of a run (`torchcaps models` lists them)"
    )
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default: {PORT}; 0 selects a free one")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="where to listen (default: this machine only)")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def _run(args: Namespace, out: Output) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"play: expected {' and '.join(missing)} to be installed; get it with: pip install 'torchcaps[play]'"
        )
    import torch

    from torchcaps.playground import create_app, open_network, serve
    from torchcaps.serving import address_of, is_loopback, listen

    # A port in use is reported before a network is trained.
    with listen(args.host, args.port) as listener:
        with out.stdout_kept():
            network = open_network(args.run, pretrained=args.pretrained, progress=out.shows_progress, say=out.say)
        # A second thread does not speed up a batch of one.
        torch.set_num_threads(1)
        network.warm_up()
        token = None if is_loopback(args.host) else secrets.token_urlsafe(16)
        app, url = create_app(network, host=args.host, token=token), address_of(listener, args.host, token)
        out.document({"url": url, "network": network.name, "about": network.about})
        out.say(f"{network.name}: {network.about}")
        if token is not None:
            out.say(f"--host {args.host}: other machines can reach this server; it requires the token in the address")
        out.say(f"playground at {url}   (Ctrl-C stops it)", style="bold")
        # A reader of a pipe waits for the address.
        sys.stdout.flush()
        serve(app, listener, open_at=None if args.no_browser else url)
    return 0


VERB = Verb(
    name="play",
    summary="open a web page that shows how a capsule network works",
    description="Opens a page on this machine: an introduction to capsules, a toy with movable parts, and a network. "
    "Draw a digit and see the class capsules, change the dimensions of a capsule, step through routing by agreement. "
    "Without a run it shows the pretrained network for digits; the page can switch to the other pretrained networks.",
    examples=(
        ("torchcaps play", "the network for digits"),
        ("torchcaps play runs/NAME", "a network that you trained"),
        ("torchcaps play --pretrained multimnist", "the network that reads two overlapping digits"),
        ("torchcaps play --no-browser --port 0", "only print the address, on any free port"),
    ),
    configure=_configure,
    run=_run,
)
