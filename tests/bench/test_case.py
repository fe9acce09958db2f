from __future__ import annotations

import pytest

from torchcaps.bench import CASES, around
from torchcaps.errors import UnknownNameError


def test_around_starts_at_the_base_and_moves_one_axis_at_a_time():
    points = around({"batch": 4, "iters": 3}, batch=(2, 4, 8), iters=(1, 3))
    assert points == (
        {"batch": 4, "iters": 3},
        {"batch": 2, "iters": 3},
        {"batch": 8, "iters": 3},
        {"batch": 4, "iters": 1},
    )


@pytest.mark.parametrize("name", CASES.names())
def test_every_case_is_whole(name):
    case = CASES[name]
    names = [contender.name for contender in case.contenders]
    assert len(set(names)) == len(names)
    assert len({tuple(point.items()) for point in case.points}) == len(case.points)
    assert case.quick
    assert all(set(point) == set(case.points[0]) for point in (*case.points, *case.quick))
    assert "batch" in case.points[0]
    assert all(case.contender(name).name == name for name in names)


def test_an_unknown_case_names_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown benchmark 'dinamic'; did you mean 'dynamic'"):
        CASES["dinamic"]
