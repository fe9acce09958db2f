from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
# Where there is no compiler the examples run all the same, with a warning.
NO_KERNEL = "ignore:routing runs without its CPU kernel:UserWarning"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def test_examples_exist() -> None:
    assert {path.stem for path in EXAMPLES} >= {"layer_in_your_network", "own_kernel", "own_router", "watch_routing"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 90
    compiler = os.environ.get("CXX", "c++")
    if path.with_suffix(".cpp").exists() and shutil.which(compiler) is None:
        pytest.skip(f"the example compiles a kernel, and there is no C++ compiler '{compiler}'")
    assert lines[0].startswith('"""'), "an example begins by saying what it shows"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", NO_KERNEL, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert done.stderr == ""
