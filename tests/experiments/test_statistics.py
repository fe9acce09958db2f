from __future__ import annotations

from torchcaps.experiments import Statistic, format_statistic, summarize
from torchcaps.experiments.statistics import format_percent


def test_one_value_and_none() -> None:
    assert summarize([0.5]) == Statistic(0.5, None, 1)
    assert summarize([None]) is None
    assert format_statistic(None, 2) == format_percent(None, 2) == ""


def test_format() -> None:
    assert format_statistic(summarize([0.5]), 1) == "0.5"
    assert format_percent(summarize([0.5, 1.0]), 1) == "75.0 ± 35.4 %"
