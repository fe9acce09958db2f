"""TREC question classification: what kind of answer a question asks for.

Li and Roth 2002: 5,452 training and 500 test questions, each with one of six coarse classes. The original files have a
label such as `DESC:manner` as the first word of a line. Words are GloVe vectors (6B, 100 dimensions).
"""

from __future__ import annotations

from pathlib import Path

import torch

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data._split import split_indices
from torchcaps.data._tokens import GLOVE, encode
from torchcaps.data.dataset import ImageDataset
from torchcaps.data.in_memory import InMemoryDataset
from torchcaps.data.readers.labelled_lines import read_labelled_lines
from torchcaps.data.registry import DATASETS, DatasetEntry

_SEED = 2002
CLASSES = {
    "ABBR": "abbreviation",
    "DESC": "description",
    "ENTY": "entity",
    "HUM": "human",
    "LOC": "location",
    "NUM": "number",
}


def check_trec(path: Path, file: DataFile) -> tuple[list[list[str]], list[int]]:
    """Read questions and labels of one file."""
    return read_labelled_lines(path, {name: index for index, name in enumerate(CLASSES)}, file.max_bytes)


SOURCE = Source(
    folder="text/trec",
    files=(
        DataFile(
            "train_5500.label",
            sha256="9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
            max_bytes=5_000_000,
        ),
        DataFile(
            "TREC_10.label",
            sha256="033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
            max_bytes=5_000_000,
        ),
    ),
    check=check_trec,
    home="https://cogcomp.seas.upenn.edu/Data/QA/QC/",
    mirrors=("https://cogcomp.seas.upenn.edu/Data/QA/QC/",),
)


def load_trec(split: str, *, length: int = 40, val_size: int = 500) -> ImageDataset:
    """Load one split of TREC.

    Args:
        split: `train`, `val`, `test` or `train+val`.
        length: Number of words of a question; longer ones are cut. The longest has 37.
        val_size: Number of training questions in the validation split, stratified by class.

    Returns:
        The questions as images, uint8 [N, 100, 1, length], one column per word, and labels.

    Raises:
        DataError: If a file is missing or damaged.
        ConfigError: If an option is out of range.

    Example:
        >>> load_trec("test")[0]  # doctest: +SKIP
    """
    file = SOURCE.files[1 if split == "test" else 0]
    path = obtain(file, SOURCE)
    questions, numbers = check_trec(path, file)
    labels = torch.tensor(numbers)
    if split != "test":
        chosen = torch.arange(len(labels))[split_indices(labels, split, val_size, len(CLASSES), _SEED)]
        questions, labels = [questions[place] for place in chosen.tolist()], labels[chosen]
    images = encode(questions, length)
    return InMemoryDataset("trec", split, images, labels, tuple(CLASSES.values()), str(path.parent))


DATASETS.add(
    "trec",
    DatasetEntry(
        description="questions by the kind of their answer: 4,952 train, 500 val, 500 test, 40 words of 100",
        source="Xin Li, Dan Roth 2002: Learning Question Classifiers; GloVe: Pennington, Socher, Manning 2014",
        licence="research only; GloVe: PDDL 1.0",
        load=load_trec,
        sources=(SOURCE, GLOVE),
    ),
)
