"""The optional packages of torchcaps, and one sentence with the command where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torchcaps.errors import MissingPackageError

# Import names of the packages of each extra; `pyproject.toml` has their versions, and a test compares the two.
EXTRAS = {
    "train": (
        "filelock",
        "jinja2",
        "lightning",
        "matplotlib",
        "PIL",
        "platformdirs",
        "rich",
        "shtab",
        "torchmetrics",
    ),
    "play": ("fastapi", "starlette", "uvicorn"),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "explain": ("captum",),
    "sklearn": ("sklearn",),
    "hub": ("huggingface_hub",),
    "loggers": ("mlflow", "tensorboard", "wandb"),
    "sweep": ("optuna", "sklearn", "submitit"),
    "triton": ("triton",),
}


def missing_package(package: str, extra: str) -> MissingPackageError:
    """Return the error for a package that cannot be imported.

    Args:
        package: Import name of the package.
        extra: Extra of torchcaps that installs it.

    Returns:
        The error; its message has the command that installs the package.

    Example:
        >>> print(missing_package("lightning", "train"))
        lightning: expected an installed package, but it is missing (pip install 'torchcaps[train]')
    """
    return MissingPackageError(
        f"{package}: expected an installed package, but it is missing (pip install 'torchcaps[{extra}]')"
    )


@contextmanager
def explain_missing() -> Iterator[None]:
    """Replace the error of a missing optional package by one that has the command.

    Raises:
        MissingPackageError: If a package of an extra cannot be found.

    Example:
        >>> with explain_missing():
        ...     import matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        if extra is None:
            raise
        raise missing_package(package, extra) from None
