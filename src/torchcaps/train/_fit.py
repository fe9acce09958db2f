"""The training loop of one process, in Lightning's hands."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.multiprocessing.spawn import ProcessRaisedException, start_processes

from torchcaps import errors
from torchcaps.data import BatchLoader
from torchcaps.errors import TorchcapsError
from torchcaps.train._checkpoints import CheckpointFiles, newest_checkpoint
from torchcaps.train._keeper import Keeper, Stopped
from torchcaps.train._progress import ProgressBar
from torchcaps.train._vitals import Vitals
from torchcaps.train.module import TrainModule, make_model
from torchcaps.train.run import Run


def fit(run: Run, *, progress: bool = False) -> None:
    """Train a run to its end, from its newest checkpoint if it has one, in as many processes as its recipe says."""
    world = run.recipe.trainer.devices
    if world == 1:
        _fit_process(run, 0, progress)
        return
    share = max(1, torch.get_num_threads() // world)
    processes: Any = start_processes(
        _spawned, (str(run.path), _free_port(), share, progress), nprocs=world, join=False, start_method="spawn"
    )
    try:
        while not processes.join():
            pass
    except ProcessRaisedException as error:
        raise _cause(error) from None
    except KeyboardInterrupt:
        # Nothing is lost but the steps since the newest checkpoint.
        for process in processes.processes:
            process.kill()
            process.join()
        raise Stopped from None


def _cause(error: ProcessRaisedException) -> Exception:
    """What went wrong in one of the processes, without its traceback: an error of ours is told as if it were here."""
    last = str(error).strip().splitlines()[-1]
    kind, _, words = last.partition(": ")
    return TorchcapsError(words) if kind.startswith(errors.__name__) else RuntimeError(last)


def _spawned(rank: int, path: str, port: int, threads: int, progress: bool) -> None:
    os.environ.update(LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(threads)
    _fit_process(Run.open(path), rank, progress)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _fit_process(run: Run, rank: int, progress: bool) -> None:
    recipe = run.recipe
    world = recipe.trainer.devices
    train, val = (run.load_data(split, stored=True) for split in ("train", "val"))
    batches = BatchLoader(
        train,
        recipe.data.batch_size,
        shuffle=True,
        augment=recipe.data.augment,
        seed=recipe.seed,
        rank=rank,
        world=world,
        epoch_size=recipe.data.epoch_size,
    )
    held_out = None
    if len(val):
        held_out = BatchLoader(val, recipe.data.batch_size, augment=recipe.data.augment, rank=rank, world=world)
    vitals = Vitals(val if len(val) else train, recipe.data.augment)
    keeper = Keeper(run.path, recipe.trainer.checkpoint_every, vitals, stop_at=recipe.trainer.stop_at)
    newest = newest_checkpoint(run.checkpoints)
    with _quiet(), keeper.listening(alone=world == 1):
        torch.manual_seed(recipe.seed)
        model = make_model(recipe, train)
        callbacks: list[Callback] = [keeper, ProgressBar(keeper)] if progress and rank == 0 else [keeper]
        trainer = make_trainer(run, callbacks)
        trainer.fit(
            TrainModule(model, recipe, len(batches) * recipe.trainer.epochs),
            batches,
            held_out,
            ckpt_path=None if newest is None else newest[0],
            weights_only=True,
        )


def make_trainer(run: Run, callbacks: list[Callback]) -> Trainer:
    """Lightning's trainer under a run's recipe; its checkpoints, logs and bars are ours."""
    recipe = run.recipe.trainer
    strategy: Any = "auto"
    if recipe.devices > 1:
        # With some routers a weight takes no part in the answer: the votes into the classes with self-routing, say.
        strategy = DDPStrategy(cluster_environment=LightningEnvironment(), find_unused_parameters=True)
    return Trainer(
        accelerator=recipe.accelerator,
        devices=recipe.devices,
        strategy=strategy,
        precision=recipe.precision,
        max_epochs=recipe.epochs,
        callbacks=callbacks,
        plugins=[CheckpointFiles()],
        default_root_dir=run.path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning from talking of devices and tips; its warnings stay, but for what only its authors can change."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            # Lightning uses what a newer torch calls by another name.
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            # That nothing is held out was asked for.
            warnings.filterwarnings("ignore", "You defined a `validation_step` but have no", UserWarning)
            # That all weights take part is no reason to warn.
            warnings.filterwarnings("ignore", "find_unused_parameters=True was specified", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
