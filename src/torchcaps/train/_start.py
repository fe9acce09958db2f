"""Start a run from a recipe, or go on with one that was stopped."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import BatchLoader, load_data
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.models._weights import save_weights
from torchcaps.nn import right_answers
from torchcaps.train._checkpoints import newest_checkpoint
from torchcaps.train._fit import fit
from torchcaps.train._keeper import Stopped
from torchcaps.train._record import commit, machine, versions
from torchcaps.train.module import make_loss, make_model
from torchcaps.train.recipe import Recipe, from_anywhere
from torchcaps.train.run import Run, now


@torch.random.fork_rng(devices=[])
def start(recipe: Recipe, folder: str | Path | None = None, *, progress: bool = False) -> Run:
    """Train as the recipe says, in a new folder (`runs/<recipe>-<time>` if none is given).

    Ctrl-C stops after the step under way; `Run.status` is then "stopped" and `resume` goes on. The run ends with the
    weights of the epoch that was best on the validation split, tested once on the test split; where no image is held
    out for validation, with those of the last epoch.
    """
    _check_main_guard(recipe)
    recipe = from_anywhere(recipe)
    # Whatever is wrong with data, model or loss shows before there is a folder.
    data = {split: load_data(recipe.data.name, split, **recipe.data.options) for split in ("train", "val", "test")}
    train = data["train"]
    if recipe.trainer.stop_at is not None and not len(data["val"]):
        raise ConfigError("trainer.stop_at: expected images for validation to stop by, got none held out")
    model = make_model(recipe, train)
    make_loss(recipe.loss, model)
    run = Run.create(recipe, folder)
    run.update_record(
        status="running",
        seed=recipe.seed,
        image_shape=list(model.image_shape),
        num_classes=train.num_classes,
        num_labels=train.num_labels,
        class_names=list(train.class_names),
        images={split: len(part) for split, part in data.items()},
        origin=train.origin,
        parameters=sum(weight.numel() for weight in model.parameters()),
        versions=versions(),
        commit=commit(),
        machine=machine(),
        started=now(),
        resumed=[],
    )
    return _go(run, progress)


@torch.random.fork_rng(devices=[])
def resume(folder: str | Path, *, epochs: int | None = None, progress: bool = False) -> Run:
    """Go on with a run that was stopped or killed, from its newest checkpoint.

    It ends with the weights that it would have had unbroken, bit for bit on the same machine with as many threads. A
    run that is finished is given back as it is: its status says so. With more `epochs` in all than the run was to
    have it is prolonged: the schedule of the learning rate then reaches to the new end, and run.json tells of it.
    """
    run = Run.open(folder)
    if epochs is not None and epochs != run.recipe.trainer.epochs:
        run = _prolong(run, epochs)
    if run.status == "finished":
        return run
    _check_main_guard(run.recipe)
    run.update_record(resumed=[*run.record["resumed"], now()])
    return _go(run, progress)


def _prolong(run: Run, epochs: int) -> Run:
    planned = run.recipe.trainer.epochs
    if epochs < planned:
        raise ConfigError(f"trainer.epochs: expected at least the {planned} that the run was to have, got {epochs}")
    with run.locked():
        run = run.change(replace(run.recipe, trainer=replace(run.recipe.trainer, epochs=epochs)))
        entry = {"from": planned, "to": epochs, "at": now()}
        run.update_record(status="stopped", prolonged=[*run.record.get("prolonged", []), entry])
    return run


def _go(run: Run, progress: bool) -> Run:
    with run.locked():
        run.update_record(status="running")
        try:
            state = _end_state(run)
            if state is None:
                fit(run, progress=progress)
                state = _end_state(run)
            if state is None:
                raise CheckpointError(f"run: expected a checkpoint of the last epoch, got none in '{run.checkpoints}'")
            _finish(run, state)
        except Stopped:
            run.update_record(status="stopped", stopped=now())
        except BaseException:
            run.update_record(status="failed")
            raise
    return run


def _end_state(run: Run) -> Mapping[str, Any] | None:
    """What was kept of a run whose last epoch is done; None while epochs are missing."""
    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        return None
    state, trainer = newest[1]["callbacks"]["Keeper"], run.recipe.trainer
    enough = trainer.stop_at is not None and state["best"] and state["best"]["val_accuracy"] >= trainer.stop_at
    return state if enough or len(state["rows"]) == trainer.epochs else None


def _finish(run: Run, state: Mapping[str, Any]) -> None:
    chosen = [name for name in ("epoch", "step", "val_accuracy", "val_loss") if name in state["best"]]
    save_weights(state["best"]["weights"], run.weights)
    results = {
        **_test(run),
        "best": {name: state["best"][name] for name in chosen},
        "final": {name: state["rows"][-1][name] for name in chosen},
    }
    run.update_record(status="finished", finished=now(), seconds=round(state["seconds"], 1), results=results)


@torch.inference_mode()
def _test(run: Run) -> dict[str, Any]:
    """What the chosen weights come to on the test split."""
    wanted = run.recipe.trainer.accelerator
    found = torch.accelerator.current_accelerator() if wanted == "auto" else torch.device(wanted)
    device = torch.device("cpu") if found is None else found
    model = run.load_model().to(device)
    data = run.load_data("test")
    batches = BatchLoader(data, run.recipe.data.batch_size)
    if not model.classifies:
        generator = torch.Generator().manual_seed(0)
        losses = [float(model.objective(images.to(device), generator)) * len(images) for images, *_ in batches]
        return {"test_loss": sum(losses) / len(data), "test_images": len(data)}
    right = 0
    for images, labels, *_ in batches:
        right += int(right_answers(model(images.to(device)).activations.cpu(), labels).sum())
    return {"test_accuracy": right / len(data), "test_errors": len(data) - right, "test_images": len(data)}


def _check_main_guard(recipe: Recipe) -> None:
    # Each new process imports the script that started it, and would start the run again, and so on.
    if recipe.trainer.devices > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError("start: expected to be called below `if __name__ == '__main__':`, got a call while importing")
