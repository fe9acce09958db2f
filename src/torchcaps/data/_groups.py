"""The group of each image file or sample: its sub-folder, or a column of a table."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torchcaps._csv import read_rows
from torchcaps._files import read_bounded
from torchcaps._registry import nearest
from torchcaps.errors import ConfigError, DataError

FOLDER = "folder"
# Names of the column that has the file; else it is the first one.
FILE_COLUMNS = ("file", "filename", "image", "path", "name")


def groups_of_files(groups: str, root: Path, files: Sequence[Path], class_names: Sequence[str]) -> list[str]:
    """Return the group of each file.

    Args:
        groups: `folder`, or `FILE.csv:COLUMN`.
        root: The folder of the images.
        files: The files.
        class_names: Names of the folders of the classes.

    Returns:
        The groups.

    Raises:
        ConfigError: If `groups` is neither, or the table has no such column.
        DataError: If the table cannot be read, or a file has no group.
    """
    if groups == FOLDER:
        return [_sub_folder(file, root, class_names) for file in files]
    table, colon, column = groups.rpartition(":")
    if not colon or not table:
        raise ConfigError(f"groups: expected 'folder' or FILE.csv:COLUMN for a folder of images, got '{groups}'")
    by_name = _read_table(Path(table).expanduser(), column)
    # A bare file name is enough where no other image has it.
    names = Counter(file.name for file in files)
    found: list[str] = []
    missing: list[str] = []
    for file in files:
        relative = file.relative_to(root)
        keys = [
            relative.as_posix(),
            Path(*relative.parts[1:]).as_posix(),
            *([file.name] if names[file.name] == 1 else []),
        ]
        group = next((by_name[key] for key in keys if key in by_name), None)
        (missing if group is None else found).append(relative.as_posix() if group is None else group)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(f"{table}: expected a row for each image, but '{missing[0]}'{more} has none")
    return found


def _sub_folder(file: Path, root: Path, class_names: Sequence[str]) -> str:
    parts = file.relative_to(root).parts
    # The class is the first folder, or the second below that of a split.
    place = 0 if parts[0] in class_names and len(parts) > 1 else 1
    if len(parts) < place + 3:
        raise DataError(f"{file}: expected a file in a sub-folder of its class, as in class/patient/image.png")
    return parts[place + 1]


def groups_of_rows(groups: str, count: int) -> list[str]:
    """Return the group of each sample of a file of arrays, from a table with a row per sample.

    Args:
        groups: `FILE.csv:COLUMN`.
        count: Number of samples.

    Returns:
        The groups, in the order of the samples.

    Raises:
        ConfigError: If `groups` is something else, or the table has no such column.
        DataError: If the table cannot be read, or has not one value for each sample.
    """
    table, colon, column = groups.rpartition(":")
    if not colon or not table:
        raise ConfigError(f"groups: expected FILE.csv:COLUMN with a row for each sample, got '{groups}'")
    rows, _ = _read_rows(Path(table).expanduser(), column)
    values = [row[column] for row in rows]
    if len(values) != count:
        raise DataError(f"{table}: expected a row for each of {count:,} samples, got {len(values):,}")
    if not all(values):
        place = next(place for place, value in enumerate(values) if not value)
        raise DataError(f"{table}: expected a value of {column} in each row, but row {place + 1} has none")
    return values


def _read_table(file: Path, column: str) -> dict[str, str]:
    rows, columns = _read_rows(file, column)
    key = next((name for name in columns if name.lower() in FILE_COLUMNS and name != column), columns[0])
    return {row[key].replace("\\", "/"): row[column] for row in rows if row[key] and row[column]}


def _read_rows(file: Path, column: str) -> tuple[list[dict[str, str]], list[str]]:
    try:
        rows, columns = read_rows(read_bounded(file).decode("utf-8-sig"))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{file}: expected a table in CSV and UTF-8, got an error ({error})") from None
    if column not in columns:
        raise ConfigError(f"groups: unknown column '{column}' of '{file}'{nearest(column, columns)}")
    return rows, columns
