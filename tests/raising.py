"""Check errors by what they name (the argument and the value), not by their wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torchcaps.errors import TorchcapsError


@contextmanager
def raises_about(error: type[TorchcapsError], *names: object) -> Iterator[pytest.ExceptionInfo[TorchcapsError]]:
    """Expect `error` with a one-line message that contains every one of `names`.

    Args:
        error: The exact class of the expected error; a base or derived class does not count.
        *names: What the message must mention: the argument first, then the value it got.

    Yields:
        pytest's exception info, for further checks.
    """
    if not names:
        raise TypeError("raises_about needs the argument or value that the message must name")
    with pytest.raises(error) as caught:
        yield caught
    assert type(caught.value) is error
    message = str(caught.value)
    assert "\n" not in message
    missing = [str(name) for name in names if str(name) not in message]
    assert not missing, f"expected the message to name {missing}, got {message!r}"
