"""Measure explanations of pretrained weights: `python scripts/measure_faithfulness.py [--method=M] NAME...`.

The result of each is stored in results/faithfulness.json, beside those of the others.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from torchcaps.evaluation import by_deletion, embedded_data, pretrained_data
from torchcaps.models import create_model, pretrained_card
from torchcaps.train.environment import provenance

FILE = Path(__file__).resolve().parent.parent / "results" / "faithfulness.json"


def measure(name: str, methods: list[str] | None = None, file: Path = FILE) -> None:
    """Measure one network, and store the result; bundled images are preferred to data sets.

    With `methods`, other methods that were measured before are kept.
    """
    card = pretrained_card(name)
    data = embedded_data(card) or pretrained_data(card)
    started = time.monotonic()
    result = by_deletion(create_model(card.model, pretrained=name), data, methods=methods).to_json()
    table = json.loads(file.read_text()) if file.exists() else {}
    seconds = round(time.monotonic() - started, 1)
    if methods is not None and name in table:
        kept = [row for row in table[name]["rows"] if row["name"] not in methods]
        result["rows"] = sorted([*kept, *result["rows"]], key=lambda row: row["name"])
        seconds = round(seconds + table[name]["seconds"], 1)
    if Path(result["origin"]).is_absolute():
        # A path of the machine means nothing elsewhere.
        result["origin"] = "files in TORCHCAPS_DATA"
    table[name] = {"model": card.model, "seconds": seconds, **provenance(), **result}
    file.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = [word.removeprefix("--method=") for word in words if word.startswith("--method=")]
    for name in words:
        if not name.startswith("--"):
            measure(name, chosen or None)
