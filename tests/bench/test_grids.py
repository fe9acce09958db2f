from __future__ import annotations

import pytest

from torchcaps.bench import CASES, grids
from torchcaps.bench.grids import check_kernel
from torchcaps.nn import ROUTERS
from torchcaps.types import Capsules


@pytest.mark.parametrize("name", sorted(ROUTERS))
def test_every_candidate_runs(name: str):
    case = CASES[f"conv_{name}"]
    point = {**case.points[0], "batch": 2, "types": 2, "parents": 3, "grid": 5}
    for candidate in case.candidates:
        tasks = candidate.prepare(point)
        assert list(tasks) == ["forward", "forward+backward"]
        for call in tasks.values():
            call()


@pytest.mark.parametrize("name", ["uniform", "em"])
def test_wrong_kernel_is_found(name: str, monkeypatch):
    monkeypatch.setattr(grids, "CHECKED", [(5, 2, 3, 3, 2)])
    check_kernel(name)
    right = ROUTERS[name].route_conv

    def wrong(self, children, weight, window, *, backend="auto", mask=None):
        out = right(self, children, weight, window, backend=backend, mask=mask)
        return out if backend == "reference" else Capsules(1.001 * out.poses, out.activations)

    monkeypatch.setattr(ROUTERS[name], "route_conv", wrong)
    with pytest.raises(AssertionError, match=r"^result: "):
        check_kernel(name)
