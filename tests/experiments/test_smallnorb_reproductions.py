"""Every network of the reproductions on smallNORB: two steps each, on drawn images in place of the photographs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchcaps.data import DATASETS, DatasetEntry, ImageDataset, InMemoryDataset
from torchcaps.experiments import METRICS, load_reproduction, reproduce
from torchcaps.train import Run

NAMES = ("smallnorb", "smallnorb_full", "smallnorb_iterations", "smallnorb_pairs", "smallnorb_parts",
         "smallnorb_variational", "viewpoints", "viewpoints_matched")  # fmt: skip
TINY = ("data.batch_size=5", "data.epoch_size=10", "trainer.epochs=1", "optim.warmup=0", "trainer.accelerator=cpu")
SPLITS = ("train", "val", "test", "train+val", "familiar", "novel")


def drawn(split: str, *, val: str = "random", viewpoint: str | None = None) -> ImageDataset:
    """Twenty images, or none where nothing is held out."""
    count = 0 if split == "val" and val == "none" else 20
    generator = torch.Generator().manual_seed(len(split))
    images = torch.randint(256, (count, 2, 48, 48), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 5
    return InMemoryDataset("smallnorb", split, images, labels, tuple("abcde"), "drawn at random")


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = DatasetEntry("toys", "drawn", "none", drawn, SPLITS)
    monkeypatch.setitem(DATASETS._items, "smallnorb", entry)


def check(name: str, folder: Path, *labels: str) -> None:
    """Train and measure one run of each network, or of some."""
    entry = load_reproduction(name)
    networks = [replace(network, seeds=1) for network in entry.networks if not labels or network.label in labels]
    result = reproduce(replace(entry, networks=networks), folder, changes=TINY)
    for row in result.rows:
        assert [(run.status, run.error) for run in row.runs] == [("finished", None)], row.label
        assert set(row.columns) == set(METRICS[entry.metric].columns)


def test_finished_runs_are_kept(tmp_path: Path) -> None:
    check("smallnorb_pairs", tmp_path, "3 iterations")
    (run,) = tmp_path.glob("smallnorb-*")
    assert Run.open(run).status == "finished"
    before = (run / "run.json").read_bytes()
    check("smallnorb_pairs", tmp_path, "3 iterations")
    assert (run / "run.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_network_trains_and_is_measured(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
