"""The parts of `make chaos` that decide what counts as lost."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torchcaps._files import make_folder, write_text

CHAOS = Path(__file__).parents[2] / "scripts" / "chaos"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(CHAOS)
    spec = importlib.util.spec_from_file_location("chaos_main", CHAOS / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "chaos_main", module)
    spec.loader.exec_module(module)
    return module


def test_counts_and_table(chaos: ModuleType) -> None:
    results = [("SIGKILL", "equal"), ("SIGKILL", "failed"), ("clock jump", "refused")]
    counts = chaos._counts([chaos.Outcome(fault, result) for fault, result in results])
    assert counts["SIGKILL"] == {"injected": 2, "equal": 1, "refused": 0, "failed": 1}
    assert list(counts) == ["SIGKILL", "clock jump", "all"]
    assert chaos._table(counts).splitlines()[-1].split() == ["all", "3", "1", "1", "1"]


def test_counts_of_two_runs_are_added(chaos: ModuleType) -> None:
    outcomes = [chaos.Outcome("SIGKILL", "equal"), chaos.Outcome("full disk", "refused")]
    runs = [
        {"seeds": [k], "minutes": 1.5, "commit": str(k), "faults": chaos._counts(outcomes[: k + 1]), "failures": [k]}
        for k in range(2)
    ]
    both = chaos._sum(*runs)
    assert (both["seeds"], both["minutes"], both["commit"], both["failures"]) == ([0, 1], 3.0, "1", [0, 1])
    assert both["faults"]["SIGKILL"]["injected"] == 2
    assert both["faults"]["full disk"] == {"injected": 1, "equal": 0, "refused": 1, "failed": 0}
    assert list(both["faults"])[-1] == "all"
    assert both["faults"]["all"]["injected"] == 3


@pytest.mark.skipif(sys.platform != "linux", reason="names open files by /proc")
def test_power_cut_keeps_only_what_was_synced(
    chaos: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = sys.modules["_power"]
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(os, "fsync", os.fsync)
    power._record(tmp_path, disk)
    folder = make_folder(tmp_path / "run")
    write_text(folder / "durable", "old")
    (folder / "durable").write_text("new, but not flushed")
    (folder / "never").write_text("not flushed either")
    write_text(folder / "last", "x")
    power._rebuild(disk, tmp_path / "after")
    after = {path.name: path.read_text() for path in (tmp_path / "after" / "run").iterdir()}
    # The name of a file whose content was never flushed may be on disk.
    assert after == {"durable": "old", "never": "", "last": "x"}
