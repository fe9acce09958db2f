"""Errors that torchcaps raises for invalid arguments, data and files."""


class TorchcapsError(ValueError):
    """Base class of all errors of torchcaps; the message states what was expected and what was given."""


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


class WriteError(TorchcapsError, OSError):
    """A file that cannot be written: the disk is full, or the folder is read-only."""
