"""Power cuts: keep only what had been synced to disk.

Two ways. With root, the run lies on an ext4 file system in a file (a loop device); a copy of that file is what a disk
holds after a cut. Without root, a recording layer inside the training process notes each fsync, and the folder is
rebuilt from what was synced: file contents as of the last fsync of the file, names as of the last fsync of the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from _lab import Lab, checkpoints

_MEGABYTES = 48


def can_mount() -> bool:
    """Whether this process may mount a file system from a file."""
    tools = all(shutil.which(tool) for tool in ("mkfs.ext4", "mount", "umount"))
    return tools and os.geteuid() == 0 and Path("/dev/loop-control").exists()


@contextlib.contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    """Mount an image of a file system for the length of a block."""
    at.mkdir(parents=True, exist_ok=True)
    _call("mount", "-o", "loop", str(image), str(at))
    try:
        yield
    finally:
        _call("umount", "--lazy", str(at))


def cut_on_disk(lab: Lab) -> str:
    """Cut the power of an ext4 disk at a random moment, then resume from the copy."""
    trial = lab.folder().parent
    image, after = trial / "disk.img", trial / "after.img"
    with image.open("wb") as file:
        file.truncate(_MEGABYTES * 2**20)
    _call("mkfs.ext4", "-q", str(image))
    with mounted(image, trial / "before"):
        child = lab.start(trial / "before" / "run")
        lab.pause(trial / "before" / "run", child)
        # Stopped, so that the copy shows one moment.
        child.signal(signal.SIGSTOP)
        kept = len(checkpoints(trial / "before" / "run"))
        shutil.copyfile(image, after)
        child.kill()
    image.unlink()
    with mounted(after, trial / "after"):
        # The newest may not be on disk yet; the one before it must be.
        return lab.finish(trial / "after" / "run", may_refuse=kept < 2)


def cut_recorded(lab: Lab) -> str:
    """Cut the power in the recording layer at a random moment, then resume from what was synced."""
    folder = lab.folder()
    disk = folder.parent / "disk"
    disk.mkdir()
    child = lab.start(folder, prepare=lambda: _record(folder.parent, disk))
    lab.pause(folder, child)
    child.signal(signal.SIGSTOP)
    kept = len(checkpoints(folder))
    child.kill()
    after = folder.parent / "after"
    _rebuild(disk, after)
    return lab.finish(after / folder.name, may_refuse=kept < 2)


def _record(root: Path, disk: Path) -> None:
    """Make fsync keep a copy: of the contents for a file, of the list of names for a folder."""
    (disk / "contents").mkdir()
    (disk / "names").mkdir()
    sync = os.fsync

    def recording(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        number = os.fstat(descriptor).st_ino
        if path.is_dir():
            if path.is_relative_to(root) and not path.is_relative_to(disk):
                entries = [f"{entry.inode()} {int(entry.is_dir())} {entry.name}" for entry in os.scandir(path)]
                _replace(disk / "names" / str(number), "\n".join(entries).encode())
                if path == root:
                    _replace(disk / "root", str(number).encode())
        elif path.is_relative_to(root):
            _replace(disk / "contents" / str(number), Path(f"/proc/self/fd/{descriptor}").read_bytes())

    os.fsync = recording


def _replace(path: Path, data: bytes) -> None:
    """Write in one move: the process can be killed at any moment."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


def _rebuild(disk: Path, after: Path) -> None:
    """Make the folder that the disk holds."""
    after.mkdir()
    root = disk / "root"
    if root.exists():
        _rebuild_folder(disk, root.read_text(), after)


def _rebuild_folder(disk: Path, number: str, to: Path) -> None:
    names = disk / "names" / number
    for line in names.read_text().splitlines() if names.exists() else ():
        inode, is_folder, name = line.split(" ", 2)
        if name == disk.name:
            continue
        if int(is_folder):
            (to / name).mkdir()
            _rebuild_folder(disk, inode, to / name)
        else:
            contents = disk / "contents" / inode
            # A name whose contents were never synced is an empty file.
            (to / name).write_bytes(contents.read_bytes() if contents.exists() else b"")


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)
