from __future__ import annotations

import json
import os
import stat

import pytest

from .conftest import TINY

SLURM = ["--submit", "slurm", "--workers", "3", "--slurm", "partition=gpu", "--slurm", "cpus-per-task=4"]


@pytest.fixture
def words(pictures, tmp_path):
    changes = ("model.name=cnn_small", "model.options={}", f"data.options.path={pictures}", "trainer.epochs=1")
    return ["train", "folder", *TINY, *changes, "--seeds", "2", "--out", str(tmp_path / "runs")]


def test_local_workers_share_the_runs(ask, words, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    code, out, _ = ask(*words, "--submit", "local", "--workers", "2", "--json")
    assert code == 0
    assert [run["status"] for run in json.loads(out)["runs"]] == ["finished", "finished"]
    # The workers trained them: this process only reported.
    pids = {json.loads(file.read_text())["pid"] for file in (tmp_path / "runs" / ".claims").iterdir()}
    assert os.getpid() not in pids
    assert len(list((tmp_path / "runs" / "jobs").glob("*_log.out"))) == 2


def test_script_is_printed(ask, words, tmp_path):
    code, out, err = ask(*words, *SLURM, "--print")
    assert (code, err) == (0, "")
    assert out.startswith("#!/bin/bash")
    for line in ("array=0-2%3", "partition=gpu", "cpus-per-task=4", "time=1440", "job-name=torchcaps-train"):
        assert f"#SBATCH --{line}\n" in out
    assert "srun" in out
    assert not (tmp_path / "runs").exists()


def test_array_is_submitted(ask, words, tmp_path, monkeypatch):
    """A program in place of sbatch keeps the script that it gets."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    kept = tmp_path / "kept"
    for name, text in (("sbatch", f'cp "$1" {kept}; echo Submitted batch job 12'), ("srun", "exit 1")):
        file = bin_folder / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    printed = ask(*words, *SLURM, "--print")[1]
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    # --import sets it, for the processes of a training.
    monkeypatch.setenv("TORCHCAPS_IMPORT", "")
    code, out, _ = ask(*words, *SLURM, "--import", "colorsys", "--json")
    assert code == 0
    document = json.loads(out)
    assert "--import colorsys" in document["command"]
    assert document["jobs"] == ["12_0", "12_1", "12_2"]
    assert "--seeds 2" in document["command"]
    # What is printed is what is submitted.
    assert kept.read_text().strip() == printed.strip()


@pytest.mark.parametrize(
    ("more", "about"),
    [
        (["--submit", "slurm", "--slurm", "partion=gpu"], ["--slurm", "partion", "partition"]),
        (["--submit", "local", "--print"], ["--print", "slurm"]),
        (["--print"], ["--print", "--submit"]),
        (["--submit", "local", "--workers", "0"], ["--workers", "0"]),
        (["--submit", "slurm"], ["--submit", "SLURM"]),
    ],
)
def test_mistakes(ask, words, more, about, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = ask(*words, *more)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert all(word in err for word in about)


def test_one_run_is_not_submitted(ask, words):
    code, _, err = ask(*[word for word in words if word not in ("--seeds", "2")], "--submit", "local")
    assert code == 2
    assert "--seeds" in err
