"""Fit a recipe in a new run folder, resume a run, or extend one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from torchcaps._files import MAX_TENSORS, open_regular, read_bounded, remove_parts
from torchcaps.data import ImageDataset, load_data
from torchcaps.errors import CheckpointError, ConfigError, DataError, TorchcapsError
from torchcaps.models import save_weights
from torchcaps.train._attached import Attached, attach
from torchcaps.train._cluster import Group, is_restarted, launch_id, launched, requeue
from torchcaps.train._loggers import check_loggers
from torchcaps.train._loop import follow, train_loop
from torchcaps.train._progress import testing_bar
from torchcaps.train._recovery import RECORD, set_aside_folders, text_hash
from torchcaps.train._recovery import restart as restart_folder
from torchcaps.train._signals import Stopped
from torchcaps.train._tables import METRICS, metrics_text, write_diagnostics, write_metrics
from torchcaps.train.checkpoint import RunState, list_checkpoints, newest_checkpoint
from torchcaps.train.environment import now, provenance
from torchcaps.train.few import few_per_class
from torchcaps.train.module import (
    check_mixup,
    make_loss,
    make_model,
    make_optimizer,
    parameter_groups,
    with_class_weights,
)
from torchcaps.train.own_data import OwnData, own_recipe, view_data
from torchcaps.train.recipe import (
    OWN,
    Recipe,
    TrainerRecipe,
    check_batch_size,
    checking_options,
    plain_name,
    with_absolute_paths,
)
from torchcaps.train.run import Run


@torch.random.fork_rng(devices=[])
def fit(
    recipe: Recipe,
    folder: str | Path | None = None,
    *,
    progress: bool = False,
    callbacks: Callback | Iterable[Callback] | None = None,
    logger: Logger | Iterable[Logger] | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    data: OwnData | None = None,
) -> Run:
    """Train a recipe in a new run folder.

    The run ends with the weights of the epoch that was best on the validation split, or of the last epoch if no image
    is held out, evaluated once on the test split. SIGINT, SIGTERM and SIGHUP save a checkpoint and stop: `Run.status`
    is then "stopped", and `resume` continues.

    Args:
        recipe: The recipe.
        folder: New or empty folder of the run; by default `runs/<recipe>-<time>`.
        progress: Whether to show a progress bar.
        callbacks: Callbacks of Lightning. They find `train_loss`, `train_accuracy`, `val_loss`, `val_accuracy`, `lr`
            and the diagnostics in `trainer.callback_metrics`; their state is part of the checkpoints.
        logger: Loggers of Lightning.
        trainer_options: Further arguments of Lightning's `Trainer`, such as `gradient_clip_val`.
        data: Datasets or DataLoaders of your own, by split (`train`, `test`, and `val` to hold images out), in place
            of the data set of the recipe.

    Returns:
        The run.

    Raises:
        ConfigError: If the recipe cannot be trained; no folder is made then.
        CheckpointError: If the folder is not empty.

    Example:
        >>> from torchcaps.train import load_recipe
        >>> fit(load_recipe("digits", ["trainer.epochs=5"]), "runs/digits").status  # doctest: +SKIP
    """
    attached = attach(progress, callbacks, logger, trainer_options)
    check_loggers(recipe.trainer.loggers)
    group = launched()
    if group is None:
        _check_alone(recipe)
        return _fit(recipe, folder, attached, data)
    with group.joined(recipe.trainer):
        return _fit(recipe, folder, attached, data, group) if group.rank == 0 else follow(attached, group, data)


def _fit(
    recipe: Recipe, folder: str | Path | None, attached: Attached, data: OwnData | None, group: Group | None = None
) -> Run:
    if group is not None:
        if folder is None and (known := launch_id()) is not None:
            folder = Path("runs") / f"{recipe.name}-{plain_name(known)}"
        check_batch_size(recipe, group.world)
    # torchrun and SLURM start the same command again.
    if is_restarted() and folder is not None and (Path(folder) / RECORD).exists():
        return _resume(Path(folder), attached, data, group)
    recipe = with_absolute_paths(recipe if data is None else own_recipe(recipe, data))
    # Mistakes in data, model, loss or optimiser are reported before there is a folder.
    splits = _load_splits(recipe) if data is None else view_data(data)
    train = splits["train"]
    for name in ("target_accuracy", "patience"):
        if getattr(recipe.trainer, name) is not None and not len(splits["val"]):
            raise ConfigError(f"trainer.{name}: expected a validation split, but it has no images")
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, train)
    make_loss(with_class_weights(recipe, train).loss, model)
    make_optimizer(recipe.optim, parameter_groups(model))
    check_mixup(recipe, model)
    run = Run.create(recipe, folder)
    run.use_context(splits, model, data)
    with run.locked(), _recorded(run):
        run.update_record(
            status="running",
            seed=recipe.seed,
            image_shape=list(model.image_shape),
            num_classes=train.num_classes,
            num_labels=train.num_labels,
            class_names=list(train.class_names),
            images={split: len(images) for split, images in splits.items()},
            origin=train.origin,
            parameters=sum(weight.numel() for weight in model.parameters()),
            recipe_sha256=text_hash(recipe.to_toml()),
            **provenance(),
            started=now(),
            resumed=[],
        )
        _run(run, attached, group)
    return run


def _load_splits(recipe: Recipe) -> dict[str, ImageDataset]:
    with checking_options("data.options", recipe.data.options):
        splits = {
            split: load_data(recipe.data.name, split, **recipe.data.options) for split in ("train", "val", "test")
        }
    return {split: few_per_class(data, split, recipe) for split, data in splits.items()}


@torch.random.fork_rng(devices=[])
def resume(
    folder: str | Path,
    *,
    epochs: int | None = None,
    devices: int | None = None,
    restart: bool = False,
    progress: bool = False,
    callbacks: Callback | Iterable[Callback] | None = None,
    logger: Logger | Iterable[Logger] | None = None,
    trainer_options: Mapping[str, Any] | None = None,
    data: OwnData | None = None,
) -> Run:
    """Continue a run from its newest checkpoint.

    The run ends with the weights of an uninterrupted run, bit for bit on the same machine with the same number of
    threads. A finished run is returned unchanged. A recipe.toml, run.json, metrics.csv or weights.safetensors that is
    missing or damaged is written again from the newest usable checkpoint. With more `epochs` than planned the run is
    extended: the schedule of the learning rate then ends at the new last epoch, and run.json records it.

    Args:
        folder: Folder of the run.
        epochs: New total number of epochs.
        devices: New number of processes.
        restart: Whether to start again from the first step; the checkpoints are kept aside.
        progress: Whether to show a progress bar.
        callbacks: The callbacks that the run was started with; their state is restored.
        logger: Loggers of Lightning.
        trainer_options: The options that the run was started with.
        data: The datasets that the run was started with, if they are your own.

    Returns:
        The run.

    Raises:
        ConfigError: If `epochs` is less than planned, or a finished run is to be restarted.
        CheckpointError: If the folder is not a run, is in use, or has no usable checkpoint.
        DataError: If `data` are missing, or are not those of the run.

    Example:
        >>> resume("runs/NAME", epochs=20)  # doctest: +SKIP
    """
    attached = attach(progress, callbacks, logger, trainer_options)
    path, changes = Path(folder), _Changes(epochs, devices, restart)
    group = launched()
    if group is None:
        return _resume(path, attached, data, None, changes)
    with group.joined(_known_trainer(path)):
        return _resume(path, attached, data, group, changes) if group.rank == 0 else follow(attached, group, data)


class _Changes(NamedTuple):
    """What a resumed run does in another way than before."""

    epochs: int | None = None
    devices: int | None = None
    restart: bool = False


def _known_trainer(folder: Path) -> TrainerRecipe:
    """Return the `trainer` table of a run, or the default where another host has its folder."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Run.open(folder).recipe.trainer
    except TorchcapsError:
        return TrainerRecipe()


def _resume(
    folder: Path, attached: Attached, data: OwnData | None, group: Group | None, changes: _Changes | None = None
) -> Run:
    run, changes = Run.open(folder), _Changes() if changes is None else changes
    restart = changes.restart
    if group is not None:
        check_batch_size(run.recipe, group.world)
    total = run.recipe.trainer.epochs if changes.epochs is None else changes.epochs
    if run.status == "finished" and restart:
        raise ConfigError(f"restart: expected a run that is not finished, got '{run.path}'")
    own = _own_context(run, data)
    if run.status == "finished" and total == run.recipe.trainer.epochs and _is_intact(run):
        return _without_training(run, group)
    if changes.devices is not None:
        run = Run(run.path, replace(run.recipe, trainer=replace(run.recipe.trainer, devices=changes.devices)))
    if group is None:
        _check_alone(run.recipe)
    with run.locked():
        set_aside_folders(run.path)
        if restart:
            restart_folder(run.path)
        elif not list_checkpoints(run.checkpoints) and (run.path / METRICS).exists():
            warnings.warn(f"run: no checkpoint in '{run.path}', starting from the first step", stacklevel=3)
        if total != run.recipe.trainer.epochs:
            run = _extend(run, total)
        resumed = run.record.get("resumed")
        with _recorded(run):
            run.update_record(
                status="running",
                resumed=[*(resumed if isinstance(resumed, list) else []), now()],
                recipe_sha256=text_hash(run.recipe.to_toml()),
            )
            # It may have been missing or damaged.
            run = run.change(run.recipe)
            if own is not None:
                run.use_context(own=own)
            _run(run, attached, group)
    return run


def _without_training(run: Run, group: Group | None) -> Run:
    """Tell the other processes that there is nothing to train."""
    if group is not None:
        group.send({"path": str(run.path), "recipe": run.recipe.to_toml()})
    return run


def _own_context(run: Run, data: OwnData | None) -> OwnData | None:
    """Check that datasets of the caller are those of a run."""
    if (data is None) != (run.recipe.data.name != OWN):
        expected = "the datasets that the run was trained on" if data is None else f"no data but '{run.data_name}'"
        raise DataError(f"data: expected {expected}, but '{run.path}' got {'no data' if data is None else 'others'}")
    if data is not None:
        run.use_context(own=data)
        found, known = (
            {split: len(run.load_data(split)) for split in ("train", "val", "test")},
            run.record.get("images"),
        )
        if known is not None and found != known:
            raise DataError(f"data: expected {known}, the images of the run, got {found}")
    return data


def _is_intact(run: Run) -> bool:
    """Return whether metrics and weights of a finished run are those of its last checkpoint, if that can be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checkpoint = newest_checkpoint(run.checkpoints, run.recipe)
    except CheckpointError:
        return True
    if checkpoint is None:
        return True
    state = checkpoint.state
    try:
        open_regular(run.weights, MAX_TENSORS).close()
        metrics, weights = read_bounded(run.path / METRICS), load_file(run.weights)
    except (OSError, SafetensorError):
        intact = False
    else:
        known = metrics_text(state.rows).encode("utf-8")
        if state.is_complete(run.recipe):
            intact = metrics == known and _equal(weights, state.best["weights"])
        else:
            # An older checkpoint says nothing about the end, but its rows come first.
            intact = metrics.startswith(known) and len(metrics) > len(known) and metrics.endswith(b"\n")
    if not intact:
        warnings.warn(f"run: metrics or weights in '{run.path}' are damaged; writing them again", stacklevel=3)
    return intact


def _equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and one[name].equal(other[name]) for name in one
    )


def _extend(run: Run, epochs: int) -> Run:
    planned = run.recipe.trainer.epochs
    if epochs < planned:
        raise ConfigError(f"trainer.epochs: expected at least {planned}, the epochs of the run, got {epochs}")
    recipe = replace(run.recipe, trainer=replace(run.recipe.trainer, epochs=epochs))
    entry = {"from": planned, "to": epochs, "at": now()}
    # The record first: from it and a checkpoint the new recipe can be rebuilt.
    extended = [*run.record.get("extended", []), entry]
    run.update_record(extended=extended, recipe_sha256=text_hash(recipe.to_toml()))
    return run.change(recipe)


def _run(run: Run, attached: Attached, group: Group | None) -> None:
    for folder in (run.path, run.checkpoints):
        remove_parts(folder)
    checkpoint = newest_checkpoint(run.checkpoints, run.recipe)
    state = None if checkpoint is None else checkpoint.state
    if state is None or not state.is_complete(run.recipe):
        state = train_loop(run.context, checkpoint, attached, group)
    else:
        _without_training(run, group)
    _finish(run, state, attached.progress)


@contextmanager
def _recorded(run: Run) -> Iterator[None]:
    """Record how a run ends: stopped by a signal, or failed."""
    try:
        yield
    except (Stopped, KeyboardInterrupt) as stop:
        # Ctrl-C outside of the training loop, as during the test, is not caught there.
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        run.update_record(status="stopped", stopped=now(), signal=signal.Signals(number).name)
        if number == getattr(signal, "SIGUSR1", None):
            requeue()
    except BaseException as error:
        try:
            run.update_record(status="failed")
        except (OSError, TorchcapsError) as second:
            # A full disk, say: the first error is the one to report.
            error.add_note(f"run.json could not be updated ({second})")
        raise


def _finish(run: Run, state: RunState, progress: bool) -> None:
    chosen = [name for name in ("epoch", "step", "val_accuracy", "val_loss") if name in state.best]
    # Files written before the checkpoint may be damaged.
    write_metrics(run.path, state.rows)
    write_diagnostics(run.path, state.diagnostics)
    run.context.use_weights(state.best["weights"])
    run.context.fit_temperature()
    description = run.describe_model()._asdict()
    temperature = run.context.model.temperature
    save_weights(state.best["weights"], run.weights, temperature=temperature, description=description)
    rejection = run.context.fit_rejection()
    with testing_bar(progress) as report:
        run.context.evaluate(report)
    results: dict[str, Any] = {
        **run.context.results(),
        "best": {name: state.best[name] for name in chosen},
        "final": {name: state.rows[-1][name] for name in chosen},
    }
    run.update_record(
        status="finished",
        finished=now(),
        seconds=round(state.seconds, 1),
        results=results,
        rejection=None if rejection is None else rejection.to_json(),
    )


def _check_alone(recipe: Recipe) -> None:
    """Raise ConfigError if a recipe needs processes that this one cannot start."""
    if recipe.trainer.nodes > 1:
        hosts = recipe.trainer.nodes
        raise ConfigError(
            f"trainer.nodes: expected torchrun, srun or mpirun for {hosts} hosts, but none of them started this process"
        )
    # Each new process imports the script that started it, and would start the run again.
    if recipe.trainer.devices > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "trainer.devices: expected a call below `if __name__ == '__main__':` for more than one device, "
            f"got a call while process {os.getpid()} imports the script"
        )
