from __future__ import annotations

import pytest

from torchcaps.bench.overview import TASK, gradient_bytes, router_cases, router_lines

POINT = {"batch": 2, "children": 3, "parents": 4, "iters": 3}


def make_row(candidate, *, wall, processor, megabytes):
    """Return the row of a candidate with one task."""
    times = {kind: {TASK: {"min": value}} for kind, value in (("times", wall), ("processor", processor))}
    return {"point": POINT, "candidate": candidate, "memory": {TASK: megabytes}, **times}


@pytest.mark.parametrize(("threads", "times"), [(1, ["50.0", "", "5.0 (0.10)"]), (2, ["80.0", "", "20.0 (0.25)"])])
def test_one_thread_has_the_time_of_the_processor(threads, times):
    rows = [
        make_row("fused", wall=0.02, processor=0.005, megabytes=3.0),
        make_row("reference", wall=0.08, processor=0.05, megabytes=12.0),
        # Another size does not count.
        {**make_row("recompute", wall=1.0, processor=1.0, megabytes=1.0), "point": {**POINT, "batch": 9}},
    ]
    result = {"rows": rows, "machine": {"threads": threads}, "date": "2026-11-19T00:00:00"}
    lines = {tuple(line[:2]): line[2:] for line in router_lines({"kmeans": result})[1:]}
    gradients = f"{gradient_bytes(POINT) / 1e6:.1f}"
    assert lines["`kmeans`", "dense"] == [*times, "12.0", "", "3.0 (0.25)", gradients, "2026-11-19"]
    assert set(lines["`kmeans`", "conv"]) == {""}
    assert len(lines) == len(router_cases())
