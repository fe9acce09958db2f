from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from torchcaps.bench import render_scaling, scaling, scaling_ddp, scaling_fit, scaling_summary
from torchcaps.bench._case import Point
from torchcaps.bench.scaling import AXES, FAR, layer_call, measure_call, measure_pair, points
from torchcaps.bench.scaling_fit import fit_costs, largest, nonnegative_least_squares, term_sizes
from torchcaps.cli import main
from torchcaps.nn import ROUTERS

TINY = {
    "dense": {"batch": 2, "children": 3, "parents": 2, "pose": 4},
    "conv": {"batch": 1, "grid": 3, "types": 2, "parents": 2},
}


def seconds(kind: str, point: Point) -> float:
    sizes = term_sizes(kind, point)
    return 1e-4 + 2e-11 * sizes["votes"] + 3e-9 * sizes["couplings"]


def megabytes(kind: str, point: Point) -> float:
    sizes = term_sizes(kind, point)
    return 1 + 4e-6 * sizes["weights"] + 8e-6 * sizes["couplings"]


@pytest.fixture
def result():
    """A measurement that follows known formulas; one router fails."""
    rows = [
        {
            "kind": kind,
            "router": "dynamic",
            "point": point,
            "seconds": seconds(kind, point),
            "mb": megabytes(kind, point),
        }
        for kind in AXES
        for point in points(kind)
    ]
    rows += [
        {"kind": "dense", "router": "em", "point": point, "error": "MemoryError: none"} for point in points("dense")
    ]
    speeds = {(1, 1): 100.0, (1, 2): 170.0, (2, 1): 180.0}
    return {
        "benchmark": "scaling",
        "title": "How cost grows",
        "date": "2026-01-01T00:00:00+00:00",
        "commit": None,
        "versions": {"torch": "2", "torchcaps": "0"},
        "machine": {"processor": "abacus", "cores": 2, "threads": 2, "available_mb": 16000},
        "rows": rows,
        "backbone": [{"side": side, "images": 4, "seconds": 4e-6 * side**2, "mb": 10.0} for side in (64, 112, 224)],
        "processes": [
            {"network": "capsnet", "processes": count, "threads": threads, "images": 8, "images_per_second": speed}
            for (count, threads), speed in speeds.items()
        ],
    }


@pytest.mark.parametrize("kind", ["dense", "shared", "conv"])
@pytest.mark.parametrize("router", ROUTERS.names())
def test_every_pair_is_measured(kind, router):
    (row,) = measure_pair(kind, router, [TINY["conv" if kind == "conv" else "dense"]])
    assert "error" not in row, row
    assert row["seconds"] > 0


def test_failure_is_a_row():
    (row,) = measure_pair("dense", "dynamic", [{"batch": 1, "children": 0, "parents": 1, "pose": 4}])
    assert row["error"].startswith("ConfigError")


def test_memory_counts_gradients():
    sizes = {"batch": 1, "children": 512, "parents": 64, "pose": 16}
    found = measure_call(layer_call("dense", "uniform", sizes), 0)
    assert found["mb"] > 4 * 512 * 64 * 128 / 1e6 * 0.9


def test_far_points_are_far():
    for kind in AXES:
        near = [term_sizes(kind, point)["votes"] for point in points(kind)[:-1]]
        assert term_sizes(kind, FAR[kind])["votes"] > 2 * max(near)


def test_sizes_of_a_dense_layer():
    sizes = term_sizes("dense", {"batch": 2, "children": 3, "parents": 5, "pose": 16})
    assert sizes == {"votes": 3840, "pose entries": 480, "couplings": 30, "weights": 1920, "inputs": 48}
    # One weight per parent.
    assert term_sizes("shared", {"batch": 2, "children": 3, "parents": 5, "pose": 16})["weights"] == 640


def test_sizes_of_a_convolutional_layer():
    # Two positions along each side, nine places under the kernel.
    sizes = term_sizes("conv", {"batch": 2, "grid": 5, "types": 3, "parents": 4})
    assert (sizes["couplings"], sizes["weights"], sizes["inputs"]) == (2 * 4 * 9 * 12, 9 * 12 * 16, 2 * 25 * 3 * 16)


def test_formulas_are_found_again(result):
    costs = fit_costs(result["rows"])
    assert set(costs) == {(kind, "dynamic") for kind in AXES}
    for kind in AXES:
        cost = costs[kind, "dynamic"]
        for name, expected in (("seconds", seconds), ("mb", megabytes)):
            assert cost[name].worst < 0.02
            # The far point is predicted without having been seen.
            assert cost[name].far == pytest.approx(1, abs=0.05)
            assert cost[name](term_sizes(kind, FAR[kind])) == pytest.approx(expected(kind, FAR[kind]), rel=0.05)


def test_nonnegative_least_squares_is_optimal():
    generator = np.random.default_rng(0)
    matrix, target = generator.normal(size=(12, 4)), generator.normal(size=12)
    found = nonnegative_least_squares(matrix, target)
    gradient = matrix.T @ (matrix @ found - target)
    # Kuhn and Tucker: no gain along any coordinate.
    assert (found >= 0).all()
    assert gradient[found > 0] == pytest.approx(0, abs=1e-6)
    assert (gradient[found == 0] >= -1e-6).all()


def test_largest():
    assert largest(lambda number: False) == 0
    assert largest(lambda number: True, 1000) == 1000
    assert largest(lambda number: number <= 777) == 777


def test_page(result, tmp_path):
    page, figure = render_scaling(result, tmp_path)
    text = page.read_text()
    assert figure.name in text
    assert "| capsnet | 8 | 100 | 170 | 180 | 90% |" in text
    assert "| em | MemoryError |" in text
    # 224 px: 4e-6 * 224^2 / 4 seconds per image.
    assert f"{4e-6 * 224**2 / 4 * 1281167 / 3600:.1f} hours" in text
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("|---")]
    assert all(len({lines[place].count("|") for place in (rule - 1, rule, rule + 1)}) == 1 for rule in rules)
    again = render_scaling(json.loads(json.dumps(result)), tmp_path / "again")
    assert [path.read_bytes() for path in (page, figure)] == [path.read_bytes() for path in again]
    assert scaling_summary(result)[1][0] == "dynamic"


def test_command(result, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("torchcaps.bench.run_scaling", lambda quick, progress: result)
    assert main(["bench", "scaling", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["bench", "scaling", "--out", str(tmp_path), "--render", str(tmp_path / "docs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"][0] == str(tmp_path / "docs" / "scaling.md")
    assert main(["bench", "scaling", "--quick", "--render", "x"]) == 2


def test_one_process_trains():
    assert scaling_ddp.images_per_second("capsnet_small", 2, 1, 1, torch.get_num_threads()) > 0


@pytest.mark.slow
def test_two_processes_train():
    assert scaling_ddp.images_per_second("capsnet_small", 4, 1, 2, 1) > 0


def test_backbone_of_another_size():
    rows = [{"side": 100, "images": 2, "seconds": 1.0, "mb": 1.0}]
    assert scaling_fit.backbone_seconds(rows, 200) == pytest.approx(2.0)
    assert callable(scaling.backbone_call(32))
