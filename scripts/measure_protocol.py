"""Measure networks by a protocol: `python scripts/measure_protocol.py PROTOCOL [--images=N] [NAME...] [LABEL=RUN...]`.

NAME is the name of pretrained weights, RUN the folder of a run. With N, that many test images are used, evenly spaced,
of each data set. The result of each is stored in
results/protocol-PROTOCOL.json, beside those of the others, with the recipe of a run and its parameters without decoder.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchcaps.data import DATASETS, DatasetEntry, ImageDataset
from torchcaps.evaluation import PROTOCOLS, PretrainedRun
from torchcaps.models import pretrained_card
from torchcaps.train import Run
from torchcaps.train.environment import provenance

FOLDER = Path(__file__).resolve().parent.parent / "results"


def limit_images(count: int) -> None:
    """Let every data set that is loaded from now on have at most `count` images, evenly spaced."""
    for name in DATASETS:
        entry = DATASETS[name]

        def load(split: str, entry: DatasetEntry = entry, **options: Any) -> ImageDataset:
            data = entry.load(split, **options)
            return data.evenly_spaced(min(count, len(data)))

        load.__signature__ = inspect.signature(entry.load)  # pyright: ignore[reportFunctionMemberAccess]
        DATASETS._items[name] = replace(entry, load=load)


def finished_epochs(run: Run) -> int:
    """Return the number of epochs in the metrics of a run, which may have been stopped before its last one."""
    return len((run.path / "metrics.csv").read_text().splitlines()) - 1


def measure(protocol: str, word: str, origin: dict[str, Any], folder: Path = FOLDER) -> None:
    """Measure one network, and store the result with the versions, commit and machine of `origin`."""
    label, _, path = word.partition("=")
    run = Run.open(path) if path else PretrainedRun(label)
    started = time.monotonic()
    result = PROTOCOLS[protocol](run, lambda done, total: None).to_json()
    seconds = round(time.monotonic() - started, 1)
    if Path(result["origin"].split(",")[0]).is_absolute():
        # A path of the machine means nothing elsewhere.
        result["origin"] = "files in TORCHCAPS_DATA" + "".join(f",{rest}" for rest in result["origin"].split(",")[1:])
    if isinstance(run, Run):
        about = {
            "model": run.recipe.model.name,
            "epochs": finished_epochs(run),
            "test_accuracy": run.results.get("test_accuracy"),
            "recipe": tomllib.loads(run.recipe.to_toml()),
        }
    else:
        about = {"model": pretrained_card(label).model, "test_accuracy": pretrained_card(label).test_accuracy}
    parts = dict(run.load_model().named_parameters())
    about["parameters"] = sum(part.numel() for name, part in parts.items() if not name.startswith("decoder."))
    file = folder / f"protocol-{protocol}.json"
    table = json.loads(file.read_text()) if file.exists() else {}
    table[label] = {**about, "seconds": seconds, **origin, **result}
    file.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    limits = [int(word.removeprefix("--images=")) for word in words if word.startswith("--images=")]
    if limits:
        limit_images(limits[0])
    # Before the first file is written, which changes the tree.
    here = provenance()
    for each in words:
        if not each.startswith("--"):
            measure(name, each, here)
