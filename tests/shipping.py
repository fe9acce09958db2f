"""Shipped weights for tests: files as scripts/ship_weights.py writes them, of networks that were never trained."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from torchcaps.config import dump
from torchcaps.models import create_model
from torchcaps.models._weights import save_weights
from torchcaps.train import load_recipe


def card_table(**changes: Any) -> dict[str, Any]:
    """The fields of a card, with some of them changed."""
    return {
        "model": "capsnet_small",
        "image_shape": (1, 28, 28),
        "num_classes": 10,
        "num_labels": 1,
        "class_names": tuple("0123456789"),
        "parameters": 573969,
        "data_licence": "CC BY-SA 3.0",
        "research_only": False,
        "test_accuracy": 0.9912,
        "test_images": 10_000,
        "quick_accuracy": 0.993,
        "quick_images": 1000,
        "limits": ("Light digits on black.", "Not for letters."),
        "seed": 7,
        "epochs": 5,
        "seconds": 120.0,
        "options": {"routing": {"name": "dynamic", "iters": 2}},
        "data": {"name": "mnist", "options": {}},
        "versions": {"torch": "2.13.0"},
        "machine": {"processor": "a processor"},
        "recipe": asdict(load_recipe("digits")),
        **changes,
    }


def ship(folder: Path, name: str = "mnist", *, half: bool = False, **changes: Any) -> torch.nn.Module:
    """Write a pair into a folder; the network whose weights they are."""
    table = card_table(**changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = create_model(table["model"], table["image_shape"], table["num_classes"], **table["options"])
    state = model.state_dict()
    save_weights({key: value.half() if half else value for key, value in state.items()}, folder / f"{name}.safetensors")
    (folder / f"{name}.toml").write_text(dump(table), encoding="utf-8")
    return model.eval()
