"""Check errors of the command line by what they name, not by their wording."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def refused(ask: Callable[..., tuple[int, str, str]], *words: object, about: Sequence[object]) -> str:
    """Expect exit code 2, no output, and one line on stderr that contains everything in `about`.

    Args:
        ask: The fixture that runs a command and returns exit code, stdout and stderr.
        *words: Arguments of the command.
        about: What the message must mention.

    Returns:
        The message.
    """
    code, out, err = ask(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    missing = [str(name) for name in about if str(name) not in err]
    assert not missing, f"expected the message to name {missing}, got {err!r}"
    return err
