from __future__ import annotations

from torchcaps.cli._docstrings import described_names


def function(first: int, second: str) -> None:
    """Do nothing.

    Args:
        first: A number
            on two lines.
        second: A text: with a colon.

    Returns:
        None: nothing.
    """


def test_sections_of_a_docstring() -> None:
    assert described_names(function) == {"first": "A number on two lines.", "second": "A text: with a colon."}
    assert described_names(test_sections_of_a_docstring) == {}
