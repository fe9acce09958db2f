from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.bench import gpu
from torchcaps.bench.roofline import CASES, GPUS, Estimate, estimate
from torchcaps.cli import main
from torchcaps.errors import ConfigError
from torchcaps.ops import ROUTINGS, list_kernels
from torchcaps.ops._triton import device

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "triton.json"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'torchcaps[triton]'"
)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@needs_triton
def test_operations_and_bytes_of_a_step() -> None:
    found = estimate("self_routing", "digit_caps", 2)
    entries = 2 * 1152 * 10 * 16
    # Votes and sums; then votes and the gradients of poses and weight.
    assert found.flops == entries * (2 * 8 + 2) + entries * (3 * 2 * 8 + 2 + 4)
    poses, weight = 4 * 2 * 1152 * 8, 4 * 1152 * 10 * 8 * 16
    assert found.launches == 2
    assert 2 * (poses + weight) < found.bytes < 10 * (poses + weight)


@needs_triton
@without_gpu
def test_recording_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    estimate("self_routing", "digit_caps", 1)
    assert device.recorded is None
    assert not any(kernel.available for kernel in list_kernels() if kernel.backend == "triton")


def test_the_slower_of_operations_and_bytes_sets_the_bound() -> None:
    a100 = GPUS[0]
    assert Estimate("em", "class_caps", 1, 1, 19.5e9, 1.0).bound(a100) == (pytest.approx(1e-3), "operations")
    assert Estimate("em", "class_caps", 1, 1, 1.0, 2.039e9).bound(a100) == (pytest.approx(1e-3), "bytes")


def test_every_routing_with_a_kernel_has_an_estimate() -> None:
    served = {name for name in ROUTINGS for kernel in ROUTINGS[name].kernels if kernel.backend == "triton"}
    assert {routing for routing, _ in CASES} == served


@needs_triton
def test_recorded_estimates_are_those_of_the_code() -> None:
    rows = {(row["routing"], row["layer"]): row for row in json.loads(RECORDED.read_text())["rows"]}
    assert set(rows) == set(CASES)
    row = rows["em", "class_caps"]
    live = gpu.describe(estimate("em", "class_caps", row["batch"]))
    assert {key: row[key] for key in live} == json.loads(json.dumps(live))
    for usage in (usage for row in rows.values() for usage in row.get("compiled", [])):
        assert usage["spilled"] == 0


@without_gpu
def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--device", "cuda"]) == 2
    assert "torch finds no CUDA device" in capsys.readouterr().err
    assert main(["bench", "--device", "cuda", "--render", "pages"]) == 2
    assert "--render" in capsys.readouterr().err


def test_unknown_routing_is_named() -> None:
    with raises_about(ConfigError, "NAME", "'uniform'", "kmeans"):
        gpu.run_gpu(["uniform"])


@needs_triton
def test_steps_are_measured_beside_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    monkeypatch.setattr(gpu, "BACKENDS", ("recompute", "triton"))
    monkeypatch.setattr(gpu, "check_kernel", checked.append)
    result = gpu.run_gpu(["self_routing"], device="cpu", quick=True)
    (row,) = result["rows"]
    assert checked == ["self_routing"]
    assert row["measured"]["recompute"]["median_ms"] >= row["measured"]["recompute"]["min_ms"] > 0
    # Without a GPU the kernel cannot be measured, and the reason is the result.
    assert "CUDA" in row["measured"]["triton"]
    header, line = gpu.table(result)
    assert len(header) == len(line)


def test_table_of_estimates_alone() -> None:
    row: dict[str, Any] = gpu.describe(Estimate("em", "class_caps", 32, 12, 2e9, 3e6))
    header, line = gpu.table({**gpu.make_result([row]), "machine": {"accelerator": None}})
    assert header[-1] == "measured"
    assert line[-1] == "not yet"
    row["measured"] = {"triton": {"median_ms": 1.5}}
    assert gpu.table({**gpu.make_result([row]), "machine": {"accelerator": "A100"}})[1][-1] == "1.500 ms"
