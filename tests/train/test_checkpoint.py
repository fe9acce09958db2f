from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from raising import raises_about
from torchcaps.errors import CheckpointError
from torchcaps.train import load_recipe
from torchcaps.train.checkpoint import (
    FORMAT,
    KEY,
    Checkpoint,
    CheckpointFiles,
    RunState,
    checkpoint_path,
    drop_old,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    run_entry,
    warn_if_computed_differently,
)

RECIPE = load_recipe("digits")


def save(folder: Path, step: int, epoch: int = 1, **changes: Any) -> Path:
    path = checkpoint_path(folder, epoch, step)
    entry = run_entry(RECIPE, RunState(seconds=float(step)), torch.zeros(3), 1, {"status": "running"}) | changes
    CheckpointFiles().save_checkpoint({"weights": torch.arange(1000), KEY: entry}, path)
    return path


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_content(tmp_path):
    entry = read_checkpoint(save(tmp_path, 7))[KEY]
    assert (entry["format"], entry["seed"], entry["world_size"]) == (FORMAT, RECIPE.seed, 1)
    assert entry["recipe"] == RECIPE.to_toml()
    assert entry["threads"] == torch.get_num_threads()
    newest = newest_checkpoint(tmp_path, RECIPE)
    assert newest is not None
    assert newest.state == RunState(seconds=7.0)


def kept_steps(folder: Path) -> list[int]:
    return [int(path.stem[-8:]) for path in list_checkpoints(folder)]


def test_drop_old_keeps_the_newest_two_and_ten_epochs(tmp_path):
    for epoch in range(1, 13):
        for step in range(3):
            save(tmp_path, 10 * epoch + step, epoch)
    drop_old(tmp_path)
    assert kept_steps(tmp_path) == [122, 121, *(10 * epoch + 2 for epoch in range(11, 2, -1))]


def test_drop_old_keeps_fewer_large_ones(tmp_path):
    size = max(save(tmp_path, epoch, epoch).stat().st_size for epoch in range(1, 6))
    drop_old(tmp_path, most_bytes=3 * size)
    assert kept_steps(tmp_path) == [5, 4, 3]
    # The newest two always.
    drop_old(tmp_path, most_bytes=1)
    assert kept_steps(tmp_path) == [5, 4]


def test_no_checkpoint(tmp_path):
    assert newest_checkpoint(tmp_path, RECIPE) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # In the numbers, which torch does not check.
    place = content.index(torch.arange(1000).numpy().tobytes()[800:816])
    content[place] ^= 1
    path.write_bytes(content)


def without_entry(path: Path) -> None:
    torch.save({"weights": torch.arange(3)}, path)


def with_format_alone(path: Path) -> None:
    torch.save({KEY: {"format": FORMAT}}, path)


@pytest.mark.parametrize("damage", [cut, alter, without_entry, with_format_alone, lambda path: path.write_bytes(b"")])
def test_damaged_falls_back_to_the_one_before(tmp_path, damage):
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    with pytest.warns(UserWarning, match=r"step-00000002.ckpt.*using the one before"):
        newest = newest_checkpoint(tmp_path, RECIPE)
    assert newest is not None
    assert newest.state.seconds == 1


@pytest.mark.parametrize("damage", [cut, alter, without_entry, with_format_alone])
def test_all_damaged(tmp_path, damage):
    damage(save(tmp_path, 1))
    with raises_about(CheckpointError, "checkpoint", "step-00000001.ckpt"):
        newest_checkpoint(tmp_path, RECIPE)


def test_other_format(tmp_path):
    path = save(tmp_path, 1, format=FORMAT + 1)
    with raises_about(CheckpointError, "checkpoint", path, f"format {FORMAT + 1}"):
        read_checkpoint(path)


def test_another_run_is_refused(tmp_path):
    save(tmp_path, 1)
    with raises_about(CheckpointError, "checkpoint", "step-00000001.ckpt", "seed 0"):
        newest_checkpoint(tmp_path, load_recipe("digits", ["seed=7"]))
    # More epochs, or another name, are the same run.
    assert newest_checkpoint(tmp_path, load_recipe("digits", ["trainer.epochs=99", "name=other"])) is not None


@pytest.mark.parametrize(("name", "value"), [("threads", 64), ("world_size", 2)])
def test_other_threads_or_processes_warn(tmp_path, name, value):
    checkpoint = Checkpoint(tmp_path, read_checkpoint(save(tmp_path, 1, **{name: value})))
    with pytest.warns(UserWarning, match=rf"^{name}: expected {value}"):
        warn_if_computed_differently(checkpoint, 1)


def test_code_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "epoch-0001-step-00000001.ckpt"
    torch.save({KEY: Evil()}, path)
    with raises_about(CheckpointError, "checkpoint", path):
        read_checkpoint(path)
    assert not (tmp_path / "evil").exists()


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = save(tmp_path, 1)
    before = path.read_bytes()

    def half(obj, file):
        file.write(before[:100])
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        CheckpointFiles().save_checkpoint({}, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with raises_about(CheckpointError, "checkpoint", path, "compressed"):
        read_checkpoint(path)
