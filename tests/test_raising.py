from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.errors import ConfigError, ShapeError, TorchcapsError


def test_accepts_message_with_argument_and_value() -> None:
    with raises_about(ConfigError, "iters", 0) as caught:
        raise ConfigError("iters: expected at least 1, got 0")
    assert "expected" in str(caught.value)


@pytest.mark.parametrize("message", ["iters: expected at least 1", "got 0", "iters:\ngot 0"])
def test_rejects_incomplete_and_multiline_messages(message: str) -> None:
    with pytest.raises(AssertionError), raises_about(ConfigError, "iters", 0):
        raise ConfigError(message)


@pytest.mark.parametrize("error", [ShapeError, TorchcapsError])
def test_rejects_another_class(error: type[TorchcapsError]) -> None:
    with pytest.raises((AssertionError, error)), raises_about(ConfigError, "iters"):
        raise error("iters: expected at least 1")


def test_needs_a_name() -> None:
    with pytest.raises(TypeError), raises_about(ConfigError):
        raise ConfigError("iters")
