"""The playground: a page on loopback that shows a capsule network think. Needs the extra `play`."""

from torchcaps.playground.network import Network, open_network
from torchcaps.playground.server import address_of, create_app, listen, serve

__all__ = ["Network", "address_of", "create_app", "listen", "open_network", "serve"]
