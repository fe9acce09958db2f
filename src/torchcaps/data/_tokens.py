"""Sentences as images: one column of bytes per word, the word's GloVe vector, so that all tools for images serve.

A column of zeros is padding. A component v is stored as the byte 128 + 32 v, at least 1: steps of 1/32, from -3.97 to
3.97. A word without a vector gets a random one from -0.5 to 0.5 that depends on the word alone, as Kim 2014 does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data._sources import DataFile, Source, obtain
from torchcaps.data.readers.word_vectors import read_word_vectors
from torchcaps.data.registry import DATASETS
from torchcaps.errors import ConfigError, DataError

SIZE = 100
_ZERO, _STEPS = 128, 32


def check_glove(path: Path, file: DataFile) -> dict[str, np.ndarray]:
    """Read the vector of one frequent word; the lines of others are only bounded."""
    return read_word_vectors(path, {"the"}, SIZE, file.max_bytes)


GLOVE = Source(
    folder="glove",
    files=(DataFile("glove.6B.100d.txt", max_bytes=500_000_000),),
    check=check_glove,
    home="https://nlp.stanford.edu/projects/glove/",
)
# A copy with the words of the data sets only, rounded to six digits.
SUBSET = DataFile("glove.6B.100d.subset.txt", max_bytes=50_000_000)


def encode(sentences: Sequence[Sequence[str]], length: int) -> Tensor:
    """Return sentences as images, uint8 [N, 100, 1, length]; longer sentences are cut.

    Args:
        sentences: The words of each sentence, in lower case.
        length: Number of words of an image.

    Returns:
        The images.

    Raises:
        ConfigError: If `length` is less than 1.
        DataError: If the vectors are missing or damaged, or no word has one.
    """
    if length < 1:
        raise ConfigError(f"length: expected a number of words of at least 1, got {length}")
    columns = _columns({word for sentence in sentences for word in sentence[:length]})
    images = np.zeros((len(sentences), SIZE, 1, length), np.uint8)
    for number, sentence in enumerate(sentences):
        for place, word in enumerate(sentence[:length]):
            images[number, :, 0, place] = columns[word]
    return torch.from_numpy(images)


def sentence_words(name: str, images: Tensor) -> list[list[str]] | None:
    """Return the words of sentences of a data set.

    Args:
        name: Name of the data set.
        images: Its images, uint8.

    Shape:
        images: [N, 100, 1, length].

    Returns:
        The words of each sentence, without padding; None for a data set without sentences.

    Example:
        >>> sentence_words("digits", torch.zeros(1, 1, 28, 28, dtype=torch.uint8)) is None
        True
    """
    # Data of a user's own have other names.
    sources = list(DATASETS[name].sources) if name in DATASETS else []
    if GLOVE not in sources:
        return None
    source = sources[0]
    words: set[str] = set()
    for file in source.files:
        sentences, _ = source.check(obtain(file, source), file)
        words.update(word for sentence in sentences for word in sentence)
    # Equal columns mean words with equal vectors; the first one in the alphabet stands for them.
    spelled = {column.tobytes(): word for word, column in sorted(_columns(words).items(), reverse=True)}
    columns = images[:, :, 0].transpose(1, 2).contiguous().numpy()  # [N, length, 100]
    return [[spelled.get(column.tobytes(), "?") for column in sentence if column.any()] for sentence in columns]


def _columns(words: set[str]) -> dict[str, np.ndarray]:
    """Return the bytes [100] of words."""
    path = GLOVE.find(GLOVE.files[0]) or GLOVE.find(SUBSET) or obtain(GLOVE.files[0], GLOVE)
    vectors = read_word_vectors(path, words, SIZE, GLOVE.files[0].max_bytes)
    if not vectors:
        raise DataError(
            f"{path}: expected vectors of the {len(words):,} words of the data set, but it has none of them"
        )
    return {word: _to_bytes(vectors[word] if word in vectors else _random(word)) for word in words}


def _to_bytes(vector: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(_STEPS * vector) + _ZERO, 1, 255).astype(np.uint8)


def _random(word: str) -> np.ndarray:
    """Return numbers from -0.5 to 0.5 that are the same on every machine, [SIZE]."""
    return np.frombuffer(hashlib.shake_128(word.encode()).digest(SIZE), np.uint8) / 255 - 0.5
