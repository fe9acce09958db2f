"""Tables in CSV files that may come from somebody else."""

from __future__ import annotations

import csv
import io


def read_rows(text: str) -> tuple[list[dict[str, str]], list[str]]:
    """Read a table whose first line names its columns.

    A cell takes at least one character. Without that bound a short file of many columns and many rows of one value
    would fill the memory, because missing values are added.

    Args:
        text: Content of the file.

    Returns:
        The rows, and the names of the columns.

    Raises:
        ValueError: If the rows have far fewer values than there are columns.
        csv.Error: If the text is not CSV.

    Example:
        >>> read_rows("a,b\\n1,2\\n")
        ([{'a': '1', 'b': '2'}], ['a', 'b'])
    """
    reader = csv.DictReader(io.StringIO(text, newline=""))
    columns, rows = list(reader.fieldnames or ()), list[dict[str, str]]()
    for row in reader:
        rows.append(row)
        if (len(rows) - 1) * len(columns) > len(text):
            raise ValueError(f"rows of fewer values than there are columns ({len(columns):,})")
    return rows, columns
