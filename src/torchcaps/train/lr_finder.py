"""Find a learning rate by a short trial (Smith 2017), with Lightning's learning-rate finder."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.tuner.tuning import Tuner

from torchcaps.data import BatchLoader, load_data
from torchcaps.errors import ConfigError
from torchcaps.train._loop import quiet
from torchcaps.train.few import few_per_class
from torchcaps.train.module import CapsModule, make_model, with_class_weights
from torchcaps.train.recipe import Recipe

MIN_STEPS = 20


@dataclass(frozen=True)
class FoundRate:
    """A learning rate, and the trial that it was found by.

    Attributes:
        lr: The learning rate at which the loss falls fastest.
        rates: Learning rate of each step.
        losses: Smoothed loss of each step.
    """

    lr: float
    rates: list[float]
    losses: list[float]


@torch.random.fork_rng(devices=[])
def find_lr(recipe: Recipe, *, steps: int = 100, lowest: float = 1e-6, highest: float = 1.0) -> FoundRate:
    """Train with a learning rate that rises exponentially, and return that at which the loss falls fastest.

    Args:
        recipe: The recipe.
        steps: Number of steps of the trial, at least 20: the first ten do not count.
        lowest: First learning rate.
        highest: Last learning rate; the trial ends earlier if the loss explodes.

    Returns:
        The learning rate and the trial.

    Raises:
        ConfigError: If there are fewer than 20 steps, or the loss never falls, so that there is no such learning rate.

    Example:
        >>> from torchcaps.train import load_recipe
        >>> find_lr(load_recipe("digits")).lr  # doctest: +SKIP
    """
    if steps < MIN_STEPS:
        raise ConfigError(f"steps: expected at least {MIN_STEPS}, got {steps} (the first ten do not count)")
    data = few_per_class(load_data(recipe.data.name, "train", **recipe.data.options), "train", recipe)
    torch.manual_seed(recipe.seed)
    model = make_model(recipe, data)
    batches = BatchLoader(
        data,
        recipe.data.batch_size,
        shuffle=True,
        augment=recipe.data.augment,
        seed=recipe.seed,
        epoch_size=recipe.data.epoch_size,
    )
    module = CapsModule(model, with_class_weights(recipe, data), steps)
    # Lightning's finder needs an attribute that holds the learning rate.
    vars(module)["lr"] = recipe.optim.lr
    with tempfile.TemporaryDirectory() as folder, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator=recipe.trainer.accelerator,
            devices=1,
            precision=recipe.trainer.precision,
            default_root_dir=folder,
            max_epochs=-1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        found = Tuner(trainer).lr_find(
            module, batches, min_lr=lowest, max_lr=highest, num_training=steps, update_attr=False
        )
    lr = None if found is None else found.suggestion()
    if found is None or lr is None:
        raise ConfigError(f"find_lr: expected a loss that falls in {steps} steps, but it never fell (give optim.lr)")
    return FoundRate(lr, list(found.results["lr"]), list(found.results["loss"]))
