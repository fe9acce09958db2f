"""Errors that torchcaps raises for invalid arguments, data and files."""

# Far more than any message needs without the value that it quotes.
MAX_MESSAGE = 2000


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Make a text by others safe to print: control characters are escaped, and the end of a long text is cut off.

    Args:
        text: The text.
        limit: Number of characters.

    Returns:
        The text; line breaks are kept.

    Example:
        >>> printable("a\\x1b[2Jb"), printable("abcdef", limit=3)
        ('a\\\\x1b[2Jb', 'abc...')
    """
    cut = text if len(text) <= limit else f"{text[:limit]}..."
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in cut)


class TorchcapsError(ValueError):
    """Base class of all errors of torchcaps; the message states what was expected and what was given.

    The message may quote a file by others: it is made printable, so that it cannot control a terminal.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class ShapeError(TorchcapsError):
    """A tensor has the wrong number of axes or the wrong size along one of them."""


class UnknownNameError(TorchcapsError):
    """A name that is not registered; the message suggests a similar one."""


class ConfigError(TorchcapsError):
    """An option or recipe key that does not exist or has an invalid value."""


class DataError(TorchcapsError):
    """A data file that is missing, damaged or of the wrong format; the message names the file."""


class CheckpointError(TorchcapsError):
    """A run folder, checkpoint or weight file that cannot be used."""


class ProcessError(TorchcapsError):
    """A process of several that train one run is gone, silent, or cannot train."""


class WriteError(TorchcapsError, OSError):
    """A file that cannot be written: the disk is full, or the folder is read-only."""


class MissingPackageError(ConfigError, ImportError):
    """An optional package that is not installed; the message has the command that installs it."""
