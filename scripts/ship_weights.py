"""Put the weights of a finished run into the package, with their card: `python scripts/ship_weights.py RUN NAME ...`.

The weights are tested again as they are stored, and the card has the result. With --half they are stored in 16
bits. The licence is that of the data set, unless another is given. Weights of data for research only go to `weights/`,
outside the package, which has only their card. Run scripts/make_tables.py afterwards.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torchcaps.config import dump
from torchcaps.data import DATASETS
from torchcaps.errors import CheckpointError, ConfigError
from torchcaps.evaluation import Evaluation, evaluate
from torchcaps.evaluation.pretrained_data import embedded_data
from torchcaps.models import load_weights, pretrained, save_weights
from torchcaps.models.pretrained import ModelCard, pretrained_card
from torchcaps.train import Run

# How far the stored weights may be from what the run reached.
TOLERANCE = 0.001
# Number of test images that the fast tests evaluate.
QUICK = 1000
RESTRICTED = ("research", "non-commercial")


def ship(run: Run, name: str, limits: Sequence[str], *, licence: str | None = None, half: bool = False) -> ModelCard:
    """Write NAME.safetensors and NAME.toml from a finished run; the card."""
    _check(run, name, limits)
    model = run.load_model()
    state = {
        key: value.to(torch.float16) if half and value.is_floating_point() else value
        for key, value in model.state_dict().items()
    }
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "weights.safetensors"
        save_weights(state, stored, temperature=model.temperature)
        tested = evaluate(load_weights(model, stored), run.load_data("test"))
    reached = run.results["test_accuracy"]
    if abs(tested.accuracy - reached) > TOLERANCE:
        raise CheckpointError(
            f"weights: expected {reached:.2%} of the test images right, as the run had, got {tested.accuracy:.2%} with "
            f"what would be stored"
        )
    licence = DATASETS[run.recipe.data.name].licence if licence is None else licence
    table = _table(run, tested, limits, licence)
    weights = (pretrained.CLONE if table["research_only"] else pretrained.FOLDER) / f"{name}.safetensors"
    embedded = embedded_data(ModelCard(name, weights, **table))
    if embedded is not None:
        table["embedded_accuracy"] = evaluate(model, embedded).accuracy
    weights.parent.mkdir(exist_ok=True)
    save_weights(state, weights, temperature=model.temperature)
    if table["research_only"]:
        table["sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    (pretrained.FOLDER / f"{name}.toml").write_text(dump(table) + "\n", encoding="utf-8")
    return pretrained_card(name)


def _check(run: Run, name: str, limits: Sequence[str]) -> None:
    if run.status != "finished" or "test_accuracy" not in run.results:
        raise CheckpointError(
            f"run: expected a finished run of a network that classifies, got '{run.path}' (status '{run.status}')"
        )
    if not name.isidentifier() or name != name.lower():
        raise ConfigError(f"name: expected lower-case letters, digits and underscores, got '{name}'")
    if not limits or not all(limits):
        raise ConfigError(
            "limits: expected at least one sentence on what the network is not good for, got an empty list"
        )
    if "path" in run.recipe.data.options:
        raise ConfigError(f"run: expected data that others have, got '{run.path}' (trained on files of this machine)")


def _table(run: Run, tested: Evaluation, limits: Sequence[str], licence: str) -> dict[str, Any]:
    record, recipe = run.record, run.recipe
    quick = tested.correct[:QUICK]
    return {
        "model": recipe.model.name,
        "image_shape": tuple(record["image_shape"]),
        "num_classes": record["num_classes"],
        "num_labels": tested.data.num_labels,
        "class_names": tuple(record["class_names"]),
        "parameters": record["parameters"],
        "data_licence": licence,
        "research_only": any(word in licence for word in RESTRICTED),
        "test_accuracy": tested.accuracy,
        "test_images": tested.count,
        "quick_accuracy": int(quick.sum()) / len(quick),
        "quick_images": len(quick),
        "limits": tuple(limits),
        "commit": record["commit"],
        "seed": record["seed"],
        "epochs": record["results"]["final"]["epoch"],
        "seconds": record["seconds"],
        "options": recipe.model.options,
        "data": {"name": recipe.data.name, "options": recipe.data.options},
        "versions": record["versions"],
        "machine": record["machine"],
        "recipe": asdict(recipe),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, ship, and say what was written and how much is shipped in all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run")
    parser.add_argument("name", metavar="NAME", help="mnist, fashion_mnist, multimnist, smallnorb, ...")
    parser.add_argument("--limits", nargs="+", required=True, metavar="SENTENCE", help="what it is not good for")
    parser.add_argument("--licence", metavar="TEXT", help="of the data (default: what `torchcaps data` says)")
    parser.add_argument("--half", action="store_true", help="store 16 bits of each number; they load as 32")
    args = parser.parse_args(argv)
    card = ship(Run.open(args.run), args.name, args.limits, licence=args.licence, half=args.half)
    own, total = card.weights.stat().st_size, sum(file.stat().st_size for file in pretrained.FOLDER.iterdir())
    print(f"{card.name}: {card.about}; {own / 1e6:.2f} MB, all together {total / 1e6:.2f} of 8 MB")


if __name__ == "__main__":
    main()
