from __future__ import annotations

import math

import matplotlib
import numpy as np

from fresh import run_fresh
from raising import raises_about
from torchcaps import viz
from torchcaps.errors import ConfigError

METRICS = {
    "epoch": [1.0, 2.0, 3.0],
    "train_loss": [0.5, 0.3, 0.2],
    "val_loss": [0.4, math.nan, 0.25],
    "val_accuracy": [0.8, 0.9, 0.95],
    "lr": [1e-3, 1e-3, 1e-3],
}


def test_one_panel_for_losses_and_one_for_accuracy() -> None:
    loss, accuracy = viz.curves(METRICS).axes
    assert [len(loss.lines), len(accuracy.lines)] == [2, 1]
    np.testing.assert_allclose(np.asarray(loss.lines[0].get_xydata()), [[1, 0.5], [2, 0.3], [3, 0.2]])
    np.testing.assert_allclose(np.asarray(accuracy.lines[0].get_ydata()), METRICS["val_accuracy"])


def test_missing_values_are_skipped() -> None:
    loss = viz.curves(METRICS).axes[0]
    np.testing.assert_allclose(np.asarray(loss.lines[1].get_xydata()), [[1, 0.4], [3, 0.25]])


def test_empty_column_is_not_drawn() -> None:
    (axes,) = viz.curves({"train_loss": [1.0, 0.5], "val_loss": [math.nan, math.nan]}).axes
    assert len(axes.lines) == 1


def test_legend_has_last_value() -> None:
    legend = viz.curves(METRICS).axes[1].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["val  95.00%"]


def test_rows_are_counted_without_epochs() -> None:
    (axes,) = viz.curves({"train_loss": [1.0, 0.5]}).axes
    assert axes.get_xlabel() == "row"
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_xdata()), [0, 1])


def test_no_columns_is_an_error() -> None:
    with raises_about(ConfigError, "metrics", "epoch, lr"):
        viz.curves({"epoch": [1], "lr": [0.1]})


def test_no_global_state_changes() -> None:
    before = dict(matplotlib.rcParams)
    viz.curves(METRICS)
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_not_imported() -> None:
    code = (
        "import sys; from torchcaps import viz; viz.curves({'loss': [1, 2]}); print('matplotlib.pyplot' in sys.modules)"
    )
    assert run_fresh(code).stdout == "False\n"
