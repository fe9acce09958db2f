from __future__ import annotations

from pathlib import Path

import torch

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.models._weights import save_weights
from torchcaps.train import Run, load_recipe

# Two steps of 16 on the bundled digits: one second per run.
TINY = ("data.batch_size=16", "data.epoch_size=32", "trainer.epochs=1", "optim.warmup=0", "trainer.accelerator=cpu")

ENTRY = """
name = "tiny"
title = "Tiny <table>"
source = "Somebody 2026, table 1"
note = "Two steps each."
metric = "error"
figures = []

[[networks]]
label = "CNN"
recipe = "digits"
changes = ["model.name=cnn_small", "model.options={}"]
seeds = 2
paper = { error = 0.39 }

[[networks]]
label = "Capsules, 1 iteration"
recipe = "digits"
changes = ["model.options={decoder = 'none', routing = {name = 'dynamic', iters = 1}}"]
"""


def write_entry(folder: Path, **pieces: str) -> Path:
    """Write a reproduction of seconds to a file, with the first values of some keys replaced."""
    text = ENTRY
    for key, value in pieces.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{key} = "))
        text = text.replace(line, f"{key} = {value}", 1)
    file = folder / "tiny.toml"
    file.write_text(text)
    return file


def finished_run(folder: Path, *changes: str, recipe: str = "digits", **results: float) -> Run:
    """Create a finished run with untrained weights."""
    made = load_recipe(recipe, changes)
    data = load_data(made.data.name, "test", **made.data.options)
    torch.manual_seed(0)
    shape = made.data.augment.output_shape(data.image_shape)
    model = create_model(made.model.name, shape, data.num_classes, **made.model.options)
    run = Run.create(made, folder / "run")
    save_weights(model, run.weights)
    run.update_record(
        status="finished",
        image_shape=list(shape),
        num_classes=data.num_classes,
        num_labels=data.num_labels,
        class_names=list(data.class_names),
        parameters=sum(weight.numel() for weight in model.parameters()),
        seconds=1.0,
        results={**results, "best": {}, "final": {}},
    )
    return run
