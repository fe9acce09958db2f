from __future__ import annotations

import inspect

import pytest

from torchcaps import errors

CHILDREN = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "MissingPackageError",
    "ProcessError",
    "ShapeError",
    "UnknownNameError",
    "WriteError",
]


@pytest.mark.parametrize("name", CHILDREN)
def test_every_error_is_a_torchcaps_error_and_a_value_error(name: str) -> None:
    with pytest.raises(errors.TorchcapsError, match="iters: expected") as caught:
        raise getattr(errors, name)("iters: expected a count, got -1")
    assert isinstance(caught.value, ValueError)


def test_few_error_classes() -> None:
    defined = {name for name, item in vars(errors).items() if inspect.isclass(item)}
    assert defined == {"TorchcapsError", *CHILDREN}


def test_messages_cannot_control_a_terminal() -> None:
    message = str(errors.DataError("name: expected a name, got '\x1b[2J\x07\x9b'\nmore"))
    assert message == "name: expected a name, got '\\x1b[2J\\x07\\x9b'\nmore"


def test_long_messages_are_cut() -> None:
    assert len(str(errors.ConfigError("9" * 10_000))) == errors.MAX_MESSAGE + 3
