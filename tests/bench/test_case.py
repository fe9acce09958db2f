from __future__ import annotations

import pytest

from raising import raises_about
from torchcaps.bench import CASES, one_axis_sweep
from torchcaps.errors import UnknownNameError


def test_one_axis_sweep():
    points = one_axis_sweep({"batch": 4, "iters": 3}, batch=(2, 4, 8), iters=(1, 3))
    assert points == (
        {"batch": 4, "iters": 3},
        {"batch": 2, "iters": 3},
        {"batch": 8, "iters": 3},
        {"batch": 4, "iters": 1},
    )


@pytest.mark.parametrize("name", CASES.names())
def test_every_case(name):
    case = CASES[name]
    names = [candidate.name for candidate in case.candidates]
    assert len(set(names)) == len(names)
    assert len({tuple(point.items()) for point in case.points}) == len(case.points)
    assert case.quick
    assert all(set(point) == set(case.points[0]) for point in (*case.points, *case.quick))
    assert "batch" in case.points[0]
    assert all(case.candidate(name).name == name for name in names)


def test_unknown_case():
    with raises_about(UnknownNameError, "'dinamic'", "'dynamic'"):
        CASES["dinamic"]
