from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from torchcaps.errors import CheckpointError
from torchcaps.train._checkpoints import (
    CheckpointFiles,
    checkpoint_path,
    drop_old,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
)


def save(folder: Path, step: int) -> Path:
    path = checkpoint_path(folder, step)
    CheckpointFiles().save_checkpoint({"step": step, "weights": torch.arange(1000)}, path)
    return path


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


def test_the_newest_is_found_and_two_are_kept(tmp_path):
    for step in (5, 100, 20):
        save(tmp_path, step)
    (tmp_path / "step-00000200.ckpt.part").write_bytes(b"half")
    drop_old(tmp_path)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000100.ckpt", "step-00000020.ckpt"]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest[1]["step"] == 100


def test_none_at_all(tmp_path):
    assert newest_checkpoint(tmp_path) is None


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # In the numbers, where torch itself does not look.
    place = content.index(torch.arange(1000).numpy().tobytes()[800:816])
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, alter, lambda path: path.write_bytes(b"")])
def test_a_damaged_one_gives_way_to_the_one_before(tmp_path, damage):
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    with pytest.warns(UserWarning, match="step-00000002.ckpt.*going on from the one before"):
        newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest[1]["step"] == 1


@pytest.mark.parametrize("damage", [cut, alter])
def test_no_good_one_left(tmp_path, damage):
    damage(save(tmp_path, 1))
    with pytest.raises(CheckpointError, match=r"checkpoint: expected a checkpoint of torchcaps, got '.*00001.ckpt'"):
        newest_checkpoint(tmp_path)


def test_nothing_in_it_can_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step-00000001.ckpt"
    torch.save({"weights": Evil()}, path)
    with pytest.raises(CheckpointError, match="checkpoint: expected a checkpoint"):
        read_checkpoint(path)
    assert not (tmp_path / "evil").exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = save(tmp_path, 1)
    before = path.read_bytes()

    def half(obj, file):
        Path(file).write_bytes(before[:100])
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        CheckpointFiles().save_checkpoint({}, path)
    assert path.read_bytes() == before
