"""The training loop: Lightning in this process, or in several."""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.utils.data import DataLoader

from torchcaps.data import BatchLoader
from torchcaps.diagnostics import EpochDiagnostics
from torchcaps.errors import CheckpointError
from torchcaps.models import ImageModel
from torchcaps.train._attached import Attached
from torchcaps.train._callback import EpochCheckpoint, RunCallback, Stopped
from torchcaps.train._progress import ProgressBar
from torchcaps.train._workers import run_workers
from torchcaps.train.checkpoint import (
    Checkpoint,
    CheckpointFiles,
    RunState,
    newest_checkpoint,
    warn_if_computed_differently,
)
from torchcaps.train.context import RunContext
from torchcaps.train.module import CapsModule, with_class_weights
from torchcaps.train.own_data import LoaderBatches, OwnData
from torchcaps.train.recipe import checking_options
from torchcaps.train.run import Run


def train_loop(context: RunContext, checkpoint: Checkpoint | None, attached: Attached | None = None) -> RunState:
    """Train a run to its end, in as many processes as its recipe says.

    Args:
        context: The run.
        checkpoint: Checkpoint to resume from.
        attached: What the caller attaches to the trainer.

    Returns:
        The state of the run after its last epoch.

    Raises:
        Stopped: If a signal ended the training.
        CheckpointError: If processes ended without a checkpoint of the last epoch.
    """
    run, attached = context.run, Attached() if attached is None else attached
    if run.recipe.trainer.devices == 1:
        return _train(context, checkpoint, 0, attached)
    stop = _spawn(context, attached)
    last = newest_checkpoint(run.checkpoints, run.recipe)
    if last is not None and last.state.is_complete(run.recipe):
        return last.state
    if stop:
        raise Stopped(stop)
    raise CheckpointError(f"run: expected a checkpoint of the last epoch, got none in '{run.checkpoints}'")


def _spawn(context: RunContext, attached: Attached) -> int:
    """Train in several processes; return the signal that stopped them, or 0."""
    run = context.run
    world = run.recipe.trainer.devices
    share = max(1, torch.get_num_threads() // world)
    hint = f"continue from the newest checkpoint with: torchcaps train --resume {run.path}"
    args = (str(run.path), _free_port(), share, context.own, attached)
    return run_workers(_spawned, world, args, hint)


def _spawned(rank: int, path: str, port: int, threads: int, own: OwnData | None, attached: Attached) -> None:
    os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(threads)
    run = Run.open(path)
    # All processes stop after the same step; their parent knows the signal.
    with suppress(Stopped):
        _train(RunContext(run, own=own), newest_checkpoint(run.checkpoints, run.recipe), rank, attached)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _train(context: RunContext, checkpoint: Checkpoint | None, rank: int, attached: Attached) -> RunState:
    run = context.run
    recipe, world = run.recipe, run.recipe.trainer.devices
    train, val = (context.data(split, stored=True) for split in ("train", "val"))
    batches = _training_batches(context, rank, world)
    held_out = None
    if len(val):
        held_out = BatchLoader(
            val,
            recipe.data.batch_size,
            augment=recipe.data.augment,
            rank=rank,
            world=world,
            workers=recipe.data.workers,
        )
    callback = RunCallback(run, EpochDiagnostics(val if len(val) else train, recipe.data.augment))
    if checkpoint is not None:
        # Lightning restores the position within an epoch, but not which epoch is next.
        batches.load_state_dict({"epoch": len(checkpoint.state.rows), "position": 0})
        if rank == 0:
            warn_if_computed_differently(checkpoint, world)
    with quiet(), callback.listening(alone=world == 1):
        model: ImageModel = context.new_model()
        trainer = make_trainer(run, callback, attached, checkpoint)
        try:
            trainer.fit(
                CapsModule(model, with_class_weights(recipe, train), len(batches) * recipe.trainer.epochs),
                batches,
                held_out,
                ckpt_path=None if checkpoint is None else checkpoint.path,
                weights_only=True,
            )
        except SIGTERMException:
            # The signal came before our handler was in place.
            raise Stopped(signal.SIGTERM) from None
    return callback.state


def _training_batches(context: RunContext, rank: int, world: int) -> BatchLoader | LoaderBatches:
    recipe, loader = context.run.recipe, (context.own or {}).get("train")
    if isinstance(loader, DataLoader):
        return LoaderBatches(loader, recipe.seed, rank, world)
    return BatchLoader(
        context.data("train", stored=True),
        recipe.data.batch_size,
        shuffle=True,
        augment=recipe.data.augment,
        seed=recipe.seed,
        rank=rank,
        world=world,
        epoch_size=recipe.data.epoch_size,
        workers=recipe.data.workers,
        balanced=recipe.data.sampler == "balanced",
    )


def make_trainer(run: Run, callback: RunCallback, attached: Attached, checkpoint: Checkpoint | None = None) -> Trainer:
    """Return Lightning's trainer for a run; checkpoints and progress bar are ours.

    Args:
        run: The run.
        callback: Callback of the run.
        attached: What the caller attaches.
        checkpoint: Checkpoint to resume from, already read.

    Returns:
        The trainer.
    """
    recipe = run.recipe.trainer
    strategy: Any = "auto"
    if recipe.devices > 1:
        # Some routers leave a weight out of the loss: self-routing does so with the votes for the classes.
        strategy = DDPStrategy(cluster_environment=LightningEnvironment(), find_unused_parameters=True)
    # In this order: ours first, so that the others find its metrics.
    callbacks: list[Callback] = [callback, *attached.callbacks, EpochCheckpoint(callback)]
    if attached.progress and int(os.environ.get("LOCAL_RANK", 0)) == 0:
        callbacks.append(ProgressBar(callback))
    options: dict[str, Any] = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        **attached.options,
    }
    with checking_options("trainer_options", attached.options):
        return Trainer(
            accelerator=recipe.accelerator,
            devices=recipe.devices,
            strategy=strategy,
            precision=recipe.precision,
            max_epochs=recipe.epochs,
            callbacks=callbacks,
            plugins=[CheckpointFiles(checkpoint)],
            default_root_dir=run.path,
            logger=list(attached.loggers) or False,
            use_distributed_sampler=False,
            **options,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Lightning's notes on devices and tips, and warnings that a user cannot act on."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # Lightning uses a name that newer versions of torch deprecate.
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            # A run without validation is a choice.
            warnings.filterwarnings("ignore", "You defined a `validation_step` but have no", UserWarning)
            # Metrics are logged once per epoch.
            warnings.filterwarnings("ignore", "The number of training batches", UserWarning)
            warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
