"""Word vectors in the text format of GloVe: a word and its numbers in each line."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np

from torchcaps.data.readers._limited_io import open_unzipped, read_lines
from torchcaps.errors import DataError


def read_word_vectors(path: Path, words: Collection[str], size: int, max_bytes: int) -> dict[str, np.ndarray]:
    """Read the vectors of some words; the others are skipped, so that memory stays that of the words.

    Args:
        path: The file.
        words: Words whose vectors are wanted.
        size: Numbers in a vector.
        max_bytes: Largest size of the file.

    Returns:
        The vectors that the file has, float32 [size], by word.

    Raises:
        DataError: If the file is too large, or a line has another number of values or one that is no finite number.

    Example:
        >>> read_word_vectors(Path("glove.6B.100d.txt"), {"the"}, 100, 10**9)  # doctest: +SKIP
    """
    # A word, and at most 32 characters for each number.
    longest, wanted = 4096 + 32 * size, set(words)
    vectors: dict[str, np.ndarray] = {}
    with open_unzipped(path) as file:
        for number, line in read_lines(file, path, longest, max_bytes):
            word, _, rest = line.decode("utf-8", "replace").partition(" ")
            if word in wanted:
                vectors[word] = _parse(rest, path, number, size)
    return vectors


def _parse(text: str, path: Path, number: int, size: int) -> np.ndarray:
    """Return the numbers of a line as float32 [size]."""
    values = text.split()
    try:
        vector = np.array([float(value) for value in values], np.float32)
    except (ValueError, OverflowError):
        raise DataError(f"{path}: expected {size} numbers in line {number}, got '{text.strip()[:40]}'") from None
    if len(vector) != size or not np.isfinite(vector).all():
        raise DataError(f"{path}: expected {size} finite numbers in line {number}, got {len(vector)} values")
    return vector
