"""What a caller attaches to the trainer of a run: callbacks, loggers, options of Lightning's trainer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger

from torchcaps.errors import ConfigError

# Options of the trainer that a run sets itself, and where a user sets them.
_OWN = {
    "accelerator": "trainer.accelerator",
    "callbacks": "the argument callbacks",
    "default_root_dir": "the argument folder",
    "devices": "trainer.devices",
    "enable_checkpointing": "a ModelCheckpoint among the callbacks",
    "logger": "the argument logger",
    "max_epochs": "trainer.epochs",
    "max_steps": "trainer.epochs",
    "max_time": "Lightning's Timer among the callbacks",
    "min_epochs": "trainer.patience",
    "min_steps": "trainer.patience",
    "plugins": None,
    "precision": "trainer.precision",
    "strategy": None,
    "use_distributed_sampler": None,
}


@dataclass(frozen=True)
class Attached:
    """What is attached to the trainer of a run.

    Attributes:
        progress: Whether to show a progress bar.
        callbacks: Callbacks of Lightning.
        loggers: Loggers of Lightning.
        options: Further arguments of Lightning's `Trainer`.
    """

    progress: bool = False
    callbacks: tuple[Callback, ...] = ()
    loggers: tuple[Logger, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def attach(
    progress: bool,
    callbacks: Callback | Iterable[Callback] | None,
    logger: Logger | Iterable[Logger] | None,
    trainer_options: Mapping[str, Any] | None,
) -> Attached:
    """Check what a caller attaches to the trainer.

    Args:
        progress: Whether to show a progress bar.
        callbacks: One or several callbacks.
        logger: One or several loggers.
        trainer_options: Further arguments of Lightning's `Trainer`.

    Returns:
        All of it.

    Raises:
        ConfigError: If an option is one that the run sets itself, or something is neither a callback nor a logger.

    Example:
        >>> attach(False, None, None, {"gradient_clip_val": 1.0}).options
        {'gradient_clip_val': 1.0}
    """
    options = dict(trainer_options or {})
    for name in options:
        if name in _OWN:
            hint = "the run sets it" if _OWN[name] is None else f"set {_OWN[name]}"
            raise ConfigError(f"trainer_options: expected options that the recipe does not set, got '{name}' ({hint})")
    return Attached(
        progress=progress,
        callbacks=_listed("callbacks", callbacks, Callback),
        loggers=_listed("logger", logger, Logger),
        options=options,
    )


def _listed(name: str, given: Any, cls: type[Any]) -> tuple[Any, ...]:
    each = () if given is None else (given,) if isinstance(given, cls) else tuple(given)
    for one in each:
        if not isinstance(one, cls):
            raise ConfigError(f"{name}: expected a {cls.__name__} of lightning.pytorch, got {type(one).__name__}")
    return each
