from __future__ import annotations

import pytest

from torchcaps.train.recipe import OptimRecipe
from torchcaps.train.schedule import lr_factor


def factors(total: int = 100, **options) -> list[float]:
    return [lr_factor(OptimRecipe(**options), step, total) for step in range(total + 1)]


def test_constant():
    assert set(factors()) == {1.0}


def test_exponential_schedule_of_paper():
    optim = OptimRecipe(schedule="exponential")
    assert [lr_factor(optim, step, 10**6) for step in (0, 2000, 4000)] == pytest.approx([1, 0.96, 0.96**2])


def test_cosine_falls_from_one_to_zero():
    values = factors(schedule="cosine")
    assert values[0] == 1
    assert values[50] == pytest.approx(0.5)
    assert values[-1] == pytest.approx(0)
    assert values == sorted(values, reverse=True)


def test_warmup_rises_to_the_schedule():
    values = factors(schedule="cosine", warmup=10)
    assert values[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert values[10] == 1
    assert values[-1] == pytest.approx(0)


def test_warmup_takes_at_most_a_fifth_of_a_short_run():
    values = factors(total=100, schedule="cosine", warmup=1000)
    assert values[:20] == pytest.approx([(step + 1) / 21 for step in range(20)])
    assert values[20] == 1
    assert values[-1] == pytest.approx(0)
    assert lr_factor(OptimRecipe(schedule="cosine", warmup=10), 0, 3) == 1
