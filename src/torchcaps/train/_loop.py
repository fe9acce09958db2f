"""The training loop: Lightning in this process, or in several."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.utils.data import DataLoader

from torchcaps.data import BatchLoader
from torchcaps.diagnostics import EpochDiagnostics
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.models import ImageModel
from torchcaps.train._attached import Attached
from torchcaps.train._callback import EpochCheckpoint, RunCallback
from torchcaps.train._cluster import Group, launched, reporting_lost
from torchcaps.train._loggers import make_loggers
from torchcaps.train._progress import ProgressBar
from torchcaps.train._signals import Stopped
from torchcaps.train._strategies import make_strategy
from torchcaps.train._whole_diagnostics import WholeDiagnostics
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
from torchcaps.train.recipe import checking_options, parse_recipe
from torchcaps.train.run import Run


def train_loop(
    context: RunContext, checkpoint: Checkpoint | None, attached: Attached | None = None, group: Group | None = None
) -> RunState:
    """Train a run to its end: in this process, in those of a launcher, or in as many as its recipe says.

    Args:
        context: The run.
        checkpoint: Checkpoint to resume from.
        attached: What the caller attaches to the trainer.
        group: The processes of a launcher.

    Returns:
        The state of the run after its last epoch.

    Raises:
        Stopped: If a signal ended the training.
        CheckpointError: If processes ended without a checkpoint of the last epoch.
    """
    run, attached = context.run, Attached() if attached is None else attached
    if group is not None and group.world > 1:
        return lead(context, checkpoint, attached, group)
    if run.recipe.trainer.devices == 1 or group is not None:
        return _train(context, checkpoint, attached, Group())
    stop = _spawn(context, attached)
    last = newest_checkpoint(run.checkpoints, run.recipe)
    if last is not None and last.state.is_complete(run.recipe):
        return last.state
    if stop:
        raise Stopped(stop)
    raise CheckpointError(f"run: expected a checkpoint of the last epoch, but '{run.checkpoints}' has none")


def lead(context: RunContext, checkpoint: Checkpoint | None, attached: Attached, group: Group) -> RunState:
    """Train in the first process of several, after sending the others recipe and checkpoint.

    Args:
        context: The run.
        checkpoint: Checkpoint to resume from.
        attached: What the caller attaches to the trainer.
        group: The processes, connected.

    Returns:
        The state of the run after its last epoch.
    """
    run = context.run
    group.send({"path": str(run.path), "recipe": run.recipe.to_toml(), "checkpoint": checkpoint})
    try:
        return _train(context, checkpoint, attached, group)
    finally:
        if run.recipe.trainer.strategy == "fsdp2":
            context.drop_model()
        group.leave()


def follow(attached: Attached, group: Group, own: OwnData | None) -> Run:
    """Train in another process than the first, which sends recipe and checkpoint: it needs no access to the folder.

    Args:
        attached: What the caller attaches to the trainer.
        group: The processes, connected.
        own: Datasets of the caller.

    Returns:
        The run.

    Raises:
        ProcessError: If the first process cannot train.
    """
    message = group.receive()
    run = Run(Path(message["path"]), parse_recipe(message["recipe"]))
    if "checkpoint" in message:
        # The first process records a stop.
        with suppress(Stopped):
            _train(RunContext(run, own=own), message["checkpoint"], attached, group)
    return run


def _spawn(context: RunContext, attached: Attached) -> int:
    """Train in several processes; return the signal that stopped them, or 0."""
    run = context.run
    trainer = run.recipe.trainer
    try:
        pickle.dumps((context.own, attached))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"trainer.devices: expected callbacks, loggers and data that can be pickled for {trainer.devices} "
            f"processes, got {error} (or start them with torchrun)"
        ) from None
    args = (trainer.devices, str(run.path), _free_port(), context.own, attached)
    return run_workers(_spawned, trainer.devices, args, _resume_hint(run))


def _resume_hint(run: Run) -> str:
    return f"continue from the newest checkpoint with: torchcaps train --resume {run.path}"


def _spawned(rank: int, world: int, path: str, port: int, own: OwnData | None, attached: Attached) -> None:
    # As torchrun does on one host.
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="none",
    )  # fmt: skip
    torch.set_num_threads(max(1, torch.get_num_threads() // world))
    group, trainer = launched(), Run.open(path).recipe.trainer
    assert group is not None
    # All processes stop after the same step; their parent knows the signal.
    with suppress(Stopped), group.joined(trainer):
        if rank:
            follow(attached, group, own)
        else:
            run = Run.open(path)
            lead(RunContext(run, own=own), newest_checkpoint(run.checkpoints, run.recipe), attached, group)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _train(context: RunContext, checkpoint: Checkpoint | None, attached: Attached, group: Group) -> RunState:
    run, recipe = context.run, context.run.recipe
    train, val = (context.data(split, stored=True) for split in ("train", "val"))
    batches = _training_batches(context, group)
    held_out = None
    if len(val):
        held_out = BatchLoader(
            val,
            recipe.data.batch_size,
            augment=recipe.data.augment,
            rank=group.rank,
            world=group.world,
            workers=recipe.data.workers,
        )
    diagnostics = EpochDiagnostics(val if len(val) else train, recipe.data.augment)
    callback = RunCallback(run, diagnostics)
    if checkpoint is not None:
        # Lightning restores the position within an epoch, but not which epoch is next.
        batches.load_state_dict({"epoch": len(checkpoint.state.rows), "position": 0})
        if group.rank == 0:
            warn_if_computed_differently(checkpoint, group.world)
    with (
        quiet(),
        callback.listening(alone=group.world == 1),
        reporting_lost(recipe.trainer, group.world, f"; {_resume_hint(run)}"),
    ):
        model: ImageModel = context.new_model()
        if recipe.trainer.strategy == "fsdp2" and group.world > 1:
            callback.diagnostics = WholeDiagnostics(diagnostics, model, first=group.rank == 0)
        trainer = make_trainer(run, callback, attached, checkpoint, group)
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
        # No process leaves while another one still needs its share of the weights.
        trainer.strategy.barrier()
    return callback.state


def _training_batches(context: RunContext, group: Group) -> BatchLoader | LoaderBatches:
    recipe, loader = context.run.recipe, (context.own or {}).get("train")
    if isinstance(loader, DataLoader):
        return LoaderBatches(loader, recipe.seed, group.rank, group.world)
    return BatchLoader(
        context.data("train", stored=True),
        recipe.data.batch_size,
        shuffle=True,
        augment=recipe.data.augment,
        seed=recipe.seed,
        rank=group.rank,
        world=group.world,
        epoch_size=recipe.data.epoch_size,
        workers=recipe.data.workers,
        balanced=recipe.data.sampler == "balanced",
    )


def make_trainer(
    run: Run,
    callback: RunCallback,
    attached: Attached,
    checkpoint: Checkpoint | None = None,
    group: Group | None = None,
) -> Trainer:
    """Return Lightning's trainer for a run; checkpoints and progress bar are ours.

    Args:
        run: The run.
        callback: Callback of the run.
        attached: What the caller attaches.
        checkpoint: Checkpoint to resume from, already read.
        group: The processes; by default this one alone.

    Returns:
        The trainer.
    """
    recipe = run.recipe.trainer
    group = Group() if group is None else group
    # In this order: ours first, so that the others find its metrics.
    callbacks: list[Callback] = [callback, *attached.callbacks, EpochCheckpoint(callback)]
    if attached.progress and group.rank == 0:
        callbacks.append(ProgressBar(callback))
    options: dict[str, Any] = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        **attached.options,
    }
    loggers = [*attached.loggers, *make_loggers(run, group.rank)]
    with checking_options("trainer_options", attached.options):
        return Trainer(
            accelerator=recipe.accelerator,
            devices=group.devices,
            num_nodes=group.nodes,
            strategy=make_strategy(recipe, group),
            precision=recipe.precision,
            max_epochs=recipe.epochs,
            callbacks=callbacks,
            plugins=[CheckpointFiles(checkpoint)],
            default_root_dir=run.path,
            logger=loggers or False,
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
            # A run of one process is a choice, too.
            warnings.filterwarnings("ignore", "The `srun` command is available", UserWarning)
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides", UserWarning)
            warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
            # Models do not change the parents of a layer in place.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
