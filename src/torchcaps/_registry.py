"""The one registry: models, routings, routers, data sets and decoders are instances of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar, cast

from torchcaps.errors import ConfigError, UnknownNameError

T = TypeVar("T")
S = TypeVar("S")


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name comes closest: `; did you mean 'x'?`, or the whole list when nothing is close.

    >>> nearest("capsnett", ["capsnet", "cnn_small"])
    "; did you mean 'capsnet'?"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if known else "; none is known"


def check_options(options: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise on the first option that its owner does not know, naming the nearest one."""
    known = list(known)
    for option in options:
        if option not in known:
            raise ConfigError(f"unknown option '{option}' of {owner}{nearest(option, known)}")


class Registry(Generic[T]):
    """Names and the things they stand for.

    >>> pets = Registry[str]("pet")
    >>> pets.add("cat", "meow")
    >>> pets["cat"], pets.names()
    ('meow', ['cat'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Enter a new name; a name that is taken is an error."""
        if name in self._items:
            raise ConfigError(f"{self.kind}: expected a new name, got '{name}' (already registered)")
        self._items[name] = item

    def register(self, name: str) -> Callable[[S], S]:
        """Enter what follows under this name: a decorator."""

        # S rather than T: what is entered keeps its own type, so that a class stays more than the base of its kind.
        def enter(item: S) -> S:
            self.add(name, cast(T, item))
            return item

        return enter

    def names(self, pattern: str = "*") -> list[str]:
        """The names that match a shell pattern, in order."""
        return sorted(name for name in self._items if fnmatchcase(name, pattern))

    def __getitem__(self, name: str) -> T:
        try:
            return self._items[name]
        except KeyError:
            raise UnknownNameError(f"unknown {self.kind} '{name}'{nearest(name, self._items)}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
