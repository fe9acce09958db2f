"""Registries of models, routers, data sets, decoders, losses and other things that have a name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar, cast

from torchcaps.errors import ConfigError, UnknownNameError

T = TypeVar("T")
S = TypeVar("S")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar name, or with all names if none is similar.

    >>> nearest("capsnett", ["capsnet", "cnn_small"])
    "; did you mean 'capsnet'?"
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if known else "; none is known"


def check_options(options: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise a ConfigError for the first unknown option, with the most similar known one."""
    known = list(known)
    for option in options:
        if option not in known:
            raise ConfigError(f"unknown option '{option}' of {owner}{nearest(option, known)}")


class Registry(Generic[T]):
    """Mapping from unique names to items, with suggestions for unknown names.

    >>> pets = Registry[str]("pet")
    >>> pets.add("cat", "meow")
    >>> pets["cat"], pets.names()
    ('meow', ['cat'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> None:
        """Add an item; a name that is already registered is a ConfigError."""
        if name in self._items:
            raise ConfigError(f"{self.kind}: expected a new name, got '{name}' (already registered)")
        self._items[name] = item

    def register(self, name: str) -> Callable[[S], S]:
        """Return a decorator that adds an item under this name."""

        # S rather than T: the decorated class keeps its own type.
        def enter(item: S) -> S:
            self.add(name, cast(T, item))
            return item

        return enter

    def names(self, pattern: str = "*") -> list[str]:
        """Return the names that match a shell pattern, in alphabetical order."""
        return sorted(name for name in self._items if fnmatchcase(name, pattern))

    def __getitem__(self, name: str) -> T:
        # Arguments in the wrong order: a message should not print a whole tensor.
        if not isinstance(name, str):
            raise UnknownNameError(f"{self.kind}: expected a name, got {type(name).__name__}")
        try:
            return self._items[name]
        except KeyError:
            raise UnknownNameError(f"unknown {self.kind} '{name}'{nearest(name, self._items)}") from None

    def __contains__(self, name: object) -> bool:
        # A recipe may have a list in the place of a name.
        return isinstance(name, str) and name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())
