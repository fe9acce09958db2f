"""What torchcaps raises when it is given something it cannot use."""


class TorchcapsError(ValueError):
    """Any mistake that torchcaps can name; the message says what was expected and what was got."""


class ShapeError(TorchcapsError):
    """A tensor has the wrong number of axes or the wrong size along one of them."""


class UnknownNameError(TorchcapsError):
    """A name that no registry knows; the message offers the nearest one."""


class ConfigError(TorchcapsError):
    """An option or a recipe key that does not exist or has a value it cannot have."""


class DataError(TorchcapsError):
    """A data file that is missing, damaged or not what it claims to be; the message names the file."""


class CheckpointError(TorchcapsError):
    """A run folder, checkpoint or weight file that cannot be used."""
