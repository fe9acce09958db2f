"""Layers whose parents are divided over processes: two real ones, each compared with the whole layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import distributed

from torchcaps.ops import _native

CASES = Path(__file__).with_name("shard_cases.py")


@pytest.mark.skipif(sys.platform != "linux" or not distributed.is_available(), reason="needs gloo")
@pytest.mark.skipif(_native.missing_reason() is not None, reason=str(_native.missing_reason()))
def test_divided_parents_equal_those_of_the_whole_layer(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CASES.parents[1])}
    commands = [[sys.executable, "-W", "error", str(CASES), str(rank), str(tmp_path / "store")] for rank in (0, 1)]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
        assert output.endswith("all equal\n")
