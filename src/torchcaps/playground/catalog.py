"""The networks that the page can switch between."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import Depends, Query, Request
from pydantic import BaseModel

from torchcaps._registry import nearest
from torchcaps.errors import UnknownNameError
from torchcaps.models import list_pretrained, pretrained_card
from torchcaps.playground.network import PlaygroundNetwork, is_playable, pretrained_network


class NetworkInfo(BaseModel):
    """A network that the page can show.

    Attributes:
        name: Name of the network.
        about: One line about model, data and accuracy.
        labels: Classes per image.
    """

    name: str
    about: str
    labels: int


class NetworkCatalog:
    """The first network, and the pretrained ones that need no download; these are opened on their first request.

    Args:
        first: The network that the playground was started with.

    Example:
        >>> catalog = NetworkCatalog(open_network())  # doctest: +SKIP
    """

    def __init__(self, first: PlaygroundNetwork) -> None:
        self.first = first
        self._opened = {first.name: first}
        self._lock = threading.Lock()
        cards = [pretrained_card(name) for name in list_pretrained()]
        others = [card for card in cards if card.name != first.name and is_playable(card)]
        self.infos = [
            NetworkInfo(name=first.name, about=first.about, labels=first.labels),
            *(NetworkInfo(name=card.name, about=card.about, labels=card.num_labels) for card in others),
        ]

    @property
    def names(self) -> list[str]:
        """Names of all networks, the first one first."""
        return [info.name for info in self.infos]

    def open(self, name: str | None = None) -> PlaygroundNetwork:
        """Open a network.

        Args:
            name: Its name; None is the first network.

        Returns:
            The network.

        Raises:
            UnknownNameError: If the catalog has no such network.
        """
        if name is None:
            return self.first
        if name not in self.names:
            raise UnknownNameError(f"unknown network '{name}'{nearest(name, self.names)}")
        with self._lock:
            if name not in self._opened:
                self._opened[name] = pretrained_network(name)
            return self._opened[name]


def _catalog(request: Request) -> NetworkCatalog:
    return request.app.state.catalog


# The catalog of the app, as a parameter of an endpoint.
CatalogDep = Annotated[NetworkCatalog, Depends(_catalog)]


def _network(
    catalog: CatalogDep,
    network: Annotated[str | None, Query(max_length=200, description="name of a network; the first by default")] = None,
) -> PlaygroundNetwork:
    return catalog.open(network)


# The network of a request, as a parameter of an endpoint.
NetworkDep = Annotated[PlaygroundNetwork, Depends(_network)]
