from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import torchcaps as tc
from fresh import run_fresh

FOLDER = Path(__file__).parents[1] / "examples"
# Where there is no compiler the examples run all the same, with a warning.
STRICT = """
import runpy, torch, warnings
torch.set_num_threads(1)
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "routing runs without its CPU kernel", UserWarning)
"""
ONNX = FOLDER / "run_onnx.py"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path != ONNX)


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
    done = run_fresh(f"{STRICT}\nrunpy.run_path({str(path)!r}, run_name='__main__')", tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert done.stderr == ""


def test_exported_network_needs_onnxruntime_and_numpy_alone(tmp_path: Path) -> None:
    assert len(ONNX.read_text().splitlines()) <= 40
    for name in ("torch", "torchcaps", "PIL"):
        (tmp_path / "blocked" / name).mkdir(parents=True)
        (tmp_path / "blocked" / name / "__init__.py").write_text(f"raise ImportError('{name} is not needed')")
    tc.export(tc.create_model("cnn_small", pretrained="mnist_cnn"), tmp_path / "net.onnx")
    data = tc.load_data("digits", "test")
    images, labels = zip(*(data[place] for place in range(20)), strict=True)
    np.save(tmp_path / "digits.npy", np.stack([image.numpy() for image in images]))
    done = subprocess.run(
        [sys.executable, str(ONNX), "net.onnx", "digits.npy"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "blocked")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head == "net.onnx: CNN, images [1, 28, 28], 10 classes"
    found = [line.partition(": ")[2].split()[0] for line in lines]
    assert sum(name == str(label) for name, label in zip(found, labels, strict=True)) >= 19
