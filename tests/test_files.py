from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchcaps import _files
from torchcaps._files import appending, move, remove_parts, replacing, write_bytes, write_text
from torchcaps.errors import WriteError


def test_replace_a_text(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old and longer")
    write_text(file, "n\u00e9w")
    assert file.read_bytes() == "n\u00e9w".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_flushed_before_the_rename_and_the_folder_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    flush, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        flush(descriptor)

    def replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_bytes(tmp_path / "a", b"x")
    assert events == ["file", "rename", "folder"]


def test_failure_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    write_bytes(file, b"old")

    def half() -> None:
        with replacing(file) as part:
            part.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    write_text(link, "new")
    assert victim.read_text() == "precious"
    assert not link.is_symlink()


def test_planted_temporary_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(_files.secrets, "token_hex", lambda size: "known")
    (tmp_path / ".a.known.part").symlink_to(victim)
    with pytest.raises(WriteError):
        write_text(tmp_path / "a", "new")
    assert victim.read_text() == "precious"


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_remove_partial_files_of_killed_writers(tmp_path: Path) -> None:
    (tmp_path / ".a.1234.part").write_bytes(b"half")
    (tmp_path / "a").write_bytes(b"whole")
    remove_parts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_move_flushes_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    write_text(first / "a", "x")
    synced: set[Path] = set()
    monkeypatch.setattr(_files, "sync_folder", synced.add)
    assert move(first / "a", second / "b").read_text() == "x"
    assert synced == {first, second}


def test_appending_continues_a_file_and_flushes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.part"
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))

    def broken() -> None:
        with appending(file) as part:
            part.write(b"first")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    with appending(file) as part:
        assert part.tell() == 5
        part.write(b" second")
    assert file.read_bytes() == b"first second"
    assert sizes == [5, 12]


def test_appending_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    with pytest.raises(WriteError), appending(tmp_path / "link"):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
