from __future__ import annotations

import math

from torchcaps.diagnostics.history import Row, from_csv, to_csv
from torchcaps.train import Run, load_recipe


def test_history_round_trip():
    rows: list[Row] = [
        (1, "upper.skip", 3, "entropy", 0.1 + 0.2),
        (1, "a, b", None, "dead", 0.0),
        (12, "head", None, "gradient_norm", 1e-30),
    ]
    assert list(zip(*from_csv(to_csv(rows)).values(), strict=True)) == rows
    assert math.isnan(from_csv(to_csv([(1, "head", 1, "entropy", math.nan)]))["value"][0])


def test_run_reads_history(tmp_path):
    run = Run.create(load_recipe(), tmp_path / "a")
    assert run.diagnostics() == {}
    (run.path / "diagnostics.csv").write_text(to_csv([(2, "head", None, "dead", 0.5)]))
    assert run.diagnostics() == {
        "epoch": [2],
        "layer": ["head"],
        "iteration": [None],
        "measure": ["dead"],
        "value": [0.5],
    }
