"""diagnostics.csv: what was seen of the routing after each epoch, one number in each line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

# Epoch, layer, iteration where there is one, measure, value. A plain tuple, since it is part of the checkpoints.
Row = tuple[int, str, int | None, str, float]

# The columns, and how to read each.
_COLUMNS: dict[str, Callable[[str], Any]] = {
    "epoch": int,
    "layer": str,
    "iteration": lambda text: int(text) if text else None,
    "measure": str,
    "value": float,
}


def to_csv(rows: Sequence[Row]) -> str:
    """All rows below a header.

    >>> to_csv([(1, "head", 3, "entropy", 0.5), (1, "head", None, "dead", 0.0)]).splitlines()
    ['epoch,layer,iteration,measure,value', '1,head,3,entropy,0.5', '1,head,,dead,0.0']
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([tuple(_COLUMNS), *rows])
    return text.getvalue()


def from_csv(text: str) -> dict[str, list[Any]]:
    """The columns of it, by name.

    >>> from_csv("epoch,layer,iteration,measure,value\\n1,head,,dead,0.0\\n")
    {'epoch': [1], 'layer': ['head'], 'iteration': [None], 'measure': ['dead'], 'value': [0.0]}
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: [read(row[name]) for row in rows] for name, read in _COLUMNS.items()}
