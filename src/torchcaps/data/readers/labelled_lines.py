"""Text files of one sentence per line, with its label as the first word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchcaps.data.readers._limited_io import read_file
from torchcaps.errors import DataError

# Words of a line that are read at most; no sentence of a benchmark is nearly as long.
MAX_WORDS = 10_000


def read_labelled_lines(path: Path, classes: Mapping[str, int], max_bytes: int) -> tuple[list[list[str]], list[int]]:
    """Read sentences and their labels.

    A label may be followed by a colon and a finer label, which is left out. Words are separated by blanks, and are
    returned in lower case. Bytes that are no UTF-8 are read as Latin-1.

    Args:
        path: The file.
        classes: Class index of each label.
        max_bytes: Largest size of the file.

    Returns:
        The words of each sentence, and the class indices.

    Raises:
        DataError: If the file is too large or empty, a label is unknown, or a line has no words.

    Example:
        >>> read_labelled_lines(Path("stsa.binary.dev"), {"0": 0, "1": 1}, 10**6)  # doctest: +SKIP
    """
    sentences: list[list[str]] = []
    labels: list[int] = []
    # Not splitlines: it also breaks lines at characters that occur inside of sentences.
    for number, line in enumerate(bytes(read_file(path, max_bytes)).split(b"\n"), start=1):
        words = _decode(line).split(maxsplit=MAX_WORDS)
        if not words:
            continue
        label = words[0].partition(":")[0]
        if label not in classes:
            known = ", ".join(classes)
            raise DataError(f"{path}: expected a label of {known} in line {number}, got '{label[:40]}'")
        if not 1 < len(words) <= MAX_WORDS:
            raise DataError(f"{path}: expected 1 to {MAX_WORDS - 1:,} words in line {number}, got {len(words) - 1:,}")
        sentences.append([word.lower() for word in words[1:]])
        labels.append(classes[label])
    if not sentences:
        raise DataError(f"{path}: expected sentences with labels, got an empty file; download it again")
    return sentences, labels


def _decode(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")
