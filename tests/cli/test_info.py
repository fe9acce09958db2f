from __future__ import annotations

import pytest
import torch

from torchcaps import __version__
from torchcaps.cli import info
from torchcaps.ops import ROUTINGS


def test_versions_devices_and_kernels(ask, ask_json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", "/some/where")
    document = ask_json("info")
    assert document["versions"]["torchcaps"] == __version__
    assert document["versions"]["torch"] == torch.__version__
    assert document["devices"]["threads"] == torch.get_num_threads()
    assert document["data"] == "/some/where"
    code, out, _ = ask("info")
    assert code == 0
    assert __version__ in out
    assert "/some/where" in out


def test_missing_packages(monkeypatch: pytest.MonkeyPatch, ask_json) -> None:
    monkeypatch.setattr(info, "PACKAGES", ("no-such-package",))
    assert ask_json("info")["versions"]["no-such-package"] == "missing"


def test_kernels_match_dispatcher(ask, ask_json) -> None:
    kernels = ask_json("info")["kernels"]
    assert {kernel["algorithm"] for kernel in kernels} >= {"dynamic", "em", "uniform"}
    assert all(set(kernel) >= {"algorithm", "backend", "available", "detail"} for kernel in kernels)
    out = ask("info")[1]
    assert all(kernel["backend"] in out for kernel in kernels)


def test_matrix_of_backends(ask, ask_json) -> None:
    support = ask_json("info")["support"]
    assert {row["algorithm"] for row in support} == set(ROUTINGS)
    assert {(row["layer"], row["device"]) for row in support} == {
        (layer, device) for layer in ("dense", "conv") for device in ("cpu", "cuda", "mps")
    }
    served = {(row["algorithm"], row["layer"], row["device"], row["dtype"]): row["backend"] for row in support}
    assert served["uniform", "dense", "mps", "float16"] == "recompute"
    assert ("uniform", "dense", "mps", "float64") not in served
    lines = [line.split() for line in ask("info")[1].splitlines()]
    assert served["kuramoto", "conv", "mps", "float32"] == "recompute"
    assert any(words[:2] == ["kuramoto", "conv"] and "recompute" in words for words in lines)
