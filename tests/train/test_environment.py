from __future__ import annotations

import subprocess
from pathlib import Path

import torchcaps
from torchcaps.train.environment import commit, machine, versions


def test_versions_and_machine_are_filled_in():
    assert versions()["torchcaps"] == torchcaps.__version__
    assert all(versions().values())
    found = machine()
    assert found["cores"] >= 1
    assert found["threads"] >= 1
    assert found["processor"]


def git(folder: Path, *args: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org", *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_commit_is_that_of_torchcaps(tmp_path, monkeypatch):
    package = tmp_path / "src" / "torchcaps"
    package.mkdir(parents=True)
    file = package / "__init__.py"
    file.touch()
    monkeypatch.setattr(torchcaps, "__file__", str(file))
    assert commit() is None
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "x")
    assert commit() == git(tmp_path, "rev-parse", "HEAD")
    file.write_text("changed")
    assert commit() == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
    elsewhere = tmp_path / "lib" / "torchcaps"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr(torchcaps, "__file__", str(elsewhere / "__init__.py"))
    assert commit() is None
