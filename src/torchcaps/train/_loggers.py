"""The loggers that a recipe names, made by Lightning."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from torchcaps._extras import missing_package
from torchcaps.train.run import Run

# Package of each logger that needs one.
PACKAGES = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}


def check_loggers(names: tuple[str, ...]) -> None:
    """Raise an error with the command that installs it if the package of a logger is missing.

    Args:
        names: Names of loggers.

    Raises:
        MissingPackageError: If a package is not installed.
    """
    for package in (PACKAGES[name] for name in names if name in PACKAGES):
        try:
            __import__(package)
        except ModuleNotFoundError:
            raise missing_package(package, "loggers") from None


def make_loggers(run: Run, rank: int) -> list[Logger]:
    """Return the loggers of a run, with its recipe as hyperparameters.

    TensorBoard and CSV files are in the folder of the run. MLflow uses `MLFLOW_TRACKING_URI`, or the folder `mlruns`
    beside that of the run. A resumed run continues in the same run of MLflow and of Weights & Biases.

    Args:
        run: The run.
        rank: Index of this process; only the first one writes.

    Returns:
        The loggers.
    """
    names = run.recipe.trainer.loggers
    check_loggers(names)
    loggers = [_make(name, run) for name in names] if rank == 0 else []
    for logger in loggers:
        logger.log_hyperparams(_flat(asdict(run.recipe)))
        if isinstance(logger, MLFlowLogger):
            run.update_record(mlflow_run=logger.run_id)
    return loggers


def _make(name: str, run: Run) -> Logger:
    if name == "tensorboard":
        return TensorBoardLogger(run.path, name="tensorboard", version="", default_hp_metric=False)
    if name == "csv":
        # One folder per start: Lightning would delete the file of the start before.
        return CSVLogger(run.path, name="csv")
    if name == "mlflow":
        address = os.environ.get("MLFLOW_TRACKING_URI")
        if not address:
            # MLflow asks for this since it prefers databases; a folder needs no server and no further package.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            address = (run.path.absolute().parent / "mlruns").as_uri()
        known = run.record.get("mlflow_run")
        return MLFlowLogger(run.recipe.name, run.path.name, tracking_uri=address, run_id=known)
    return WandbLogger(name=run.path.name, id=run.path.name, project=run.recipe.name, save_dir=run.path, resume="allow")


def _flat(table: dict[str, Any], at: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted keys, lists as text."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{at}{key}.")
        else:
            flat[at + key] = value if isinstance(value, int | float | str) else str(value)
    return flat
