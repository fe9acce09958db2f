"""The playground: a local web page that shows how a capsule network works. Needs the extra `play`."""

from torchcaps.playground.network import PlaygroundNetwork, open_network
from torchcaps.playground.server import create_app, serve

__all__ = ["PlaygroundNetwork", "create_app", "open_network", "serve"]
