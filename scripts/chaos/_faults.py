"""The faults that `make chaos` injects. Each is a function of the lab that gives "equal" or "refused"."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from _lab import HANG, BrokenError, Child, Lab, MissedError, checkpoints, digest, ended_at_exit
from _power import can_mount, cut_on_disk, cut_recorded

Fault = Callable[[Lab], str]

# More epochs than for the other faults, so that it can be killed several times.
_TWO_PROCESSES = ("trainer.devices=2", "trainer.epochs=8")
# A pickle that would create the file 'executed' beside the run if anything unpickled it.
_PICKLE = b"cos\nsystem\n(S'touch executed'\ntR."


def kill(lab: Lab) -> str:
    """SIGKILL at one to three random moments."""
    folder = lab.folder()
    child = lab.start(folder)
    with ended_at_exit(child):
        lab.pause(folder, child)
    for _ in range(lab.rng.randint(0, 2)):
        child = lab.resume(folder)
        with ended_at_exit(child), contextlib.suppress(MissedError):
            lab.pause(folder, child)
    return lab.finish(folder, may_refuse=not _is_run(folder))


def stop(lab: Lab) -> str:
    """SIGTERM, SIGINT or SIGHUP at a random moment: a checkpoint, the right exit code, then resume."""
    folder = lab.folder()
    number = lab.rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    child = lab.start(folder)
    with ended_at_exit(child):
        lab.pause(folder, child)
        child.signal(number)
        ended = child.wait()
    if ended.code not in (0, 128 + number, -number):
        raise BrokenError(f"{number.name} ended the training with code {ended.code}: {ended.output[-300:]}")
    if ended.code == 128 + number and _is_run(folder):
        from torchcaps.train import Run

        if (status := Run.open(folder).status) != "stopped":
            raise BrokenError(f"{number.name} left the status '{status}'")
    return lab.finish(folder, may_refuse=not _is_run(folder))


def full_disk(lab: Lab) -> str:
    """A disk that is full at a random point; after there is room again the run resumes."""
    folder = lab.folder()
    at = folder.parent / "small"
    at.mkdir()
    room = f"size={lab.rng.randint(40, 6000)}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", room, "tmpfs", str(at)], check=True, timeout=60)
    try:
        child = lab.start(at / "run")
        with ended_at_exit(child):
            ended = child.wait()
        if ended.code == 0:
            raise MissedError
        if not ended.refused:
            raise BrokenError(f"a full disk ended the training with code {ended.code}: {ended.output[-300:]}")
        subprocess.run(["mount", "-o", "remount,size=256m", str(at)], check=True, timeout=60)
        return lab.finish(at / "run", may_refuse=not checkpoints(at / "run"))
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=False, timeout=60)


def small_files(lab: Lab) -> str:
    """A limit on the size of files, which writing meets as it meets a full disk; needs no root."""
    folder = lab.folder()
    limit = lab.rng.randint(2_000, 3_000_000)

    def prepare() -> None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    child = lab.start(folder, prepare=prepare)
    with ended_at_exit(child):
        ended = child.wait()
    if ended.code == 0:
        raise MissedError
    if not ended.refused:
        raise BrokenError(f"a limit of {limit} bytes ended the training with code {ended.code}: {ended.output[-300:]}")
    return lab.finish(folder, may_refuse=not checkpoints(folder))


def clock(lab: Lab) -> str:
    """A wall clock that jumps by up to ten years, several times."""
    folder = lab.folder()
    jumps = [lab.rng.uniform(-3e8, 3e8) for _ in range(50)]

    def prepare() -> None:
        now, calls = time.time, iter(range(10**9))
        time.time = lambda: max(1.0, now() + jumps[next(calls) % len(jumps)])

    child = lab.start(folder, prepare=prepare)
    with ended_at_exit(child):
        lab.pause(folder, child)
    child = lab.resume(folder, prepare=prepare)
    with ended_at_exit(child), contextlib.suppress(MissedError):
        lab.pause(folder, child)
    return lab.finish(folder, may_refuse=not _is_run(folder))


def damage(lab: Lab) -> str:
    """Some files of a killed run truncated, altered, emptied, deleted, replaced by pickles, folders or links."""
    folder = lab.folder()
    child = lab.start(folder)
    with ended_at_exit(child):
        lab.pause(folder, child, early=False)
    victim = folder.parent / "victim.txt"
    victim.write_text("precious")
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []
    for path in lab.rng.sample(files, min(len(files), lab.rng.randint(1, 2))):
        _damage(lab, path, victim)
    result = lab.finish(folder)
    if victim.read_text() != "precious":
        raise BrokenError("a link in the run folder was written through")
    if (Path.cwd() / "executed").exists() or (folder / "executed").exists():
        raise BrokenError("a pickle in the run folder was executed")
    return result


def _damage(lab: Lab, path: Path, victim: Path) -> None:
    data = path.read_bytes()
    kind = lab.rng.choice(("truncate", "flip", "empty", "delete", "pickle", "folder", "link", "junk"))
    path.unlink()
    if kind == "truncate":
        path.write_bytes(data[: lab.rng.randrange(len(data) + 1)])
    elif kind == "flip" and data:
        at = lab.rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << lab.rng.randrange(8))]) + data[at + 1 :])
    elif kind == "empty":
        path.touch()
    elif kind == "pickle":
        path.write_bytes(_PICKLE)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(victim)
    elif kind == "junk":
        path.write_bytes(lab.rng.randbytes(len(data)))


def swap(lab: Lab) -> str:
    """The newest checkpoint replaced by one of a run with another seed."""
    folder, other = lab.folder(), lab.folder()
    children = lab.start(folder), lab.start(other, "seed=1")
    with ended_at_exit(*children):
        lab.pause(folder, children[0], early=False)
    ours, theirs = checkpoints(folder), checkpoints(other)
    if not ours or not theirs:
        raise MissedError
    ours[-1].write_bytes(theirs[-1].read_bytes())
    if lab.rng.random() < 0.5:
        (folder / "checkpoints" / "epoch-9999-step-99999999.ckpt").write_bytes(theirs[-1].read_bytes())
    return lab.finish(folder, may_refuse=True)


def start_race(lab: Lab) -> str:
    """Four trainings with different seeds and no folder named, started at one moment."""
    place = lab.folder().parent
    go = place / "go"

    def prepare() -> None:
        os.chdir(place)
        while not go.exists():
            pass

    children = [Child(lab.words(None, f"seed={seed}"), lab.log(place), prepare) for seed in range(4)]
    with ended_at_exit(*children):
        go.touch()
        codes = [child.wait().code for child in children]
    runs = sorted((place / "runs").iterdir())
    if codes != [0] * 4 or len(runs) != 4:
        raise BrokenError(f"four starts gave codes {codes} and {len(runs)} folders")
    if {digest(run) for run in runs} != {lab.reference(f"seed={seed}") for seed in range(4)}:
        raise BrokenError("a run ended with weights that are not those of its seed")
    return "equal"


def resume_race(lab: Lab) -> str:
    """Three processes resume one run at one moment: one trains, the others refuse or find it finished."""
    folder = lab.folder()
    child = lab.start(folder)
    with ended_at_exit(child):
        lab.pause(folder, child, early=False)
    if not _is_run(folder):
        return lab.finish(folder)
    children = [lab.resume(folder) for _ in range(3)]
    with ended_at_exit(*children):
        ended = [child.wait() for child in children]
    if bad := [end for end in ended if end.code != 0 and not end.refused]:
        raise BrokenError(f"a second resume ended with code {bad[0].code}: {bad[0].output[-300:]}")
    return lab.finish(folder, may_refuse=False)


def worker(lab: Lab) -> str:
    """Two processes per run; SIGKILL for one of them, or SIGKILL or SIGTERM for the one that started them.

    Up to three times in a row, the later ones while the run is resumed. No process may stay, and the run resumes.
    """
    folder = lab.folder()
    child = lab.start(folder, *_TWO_PROCESSES)
    _kill_one_process(lab, folder, child)
    for _ in range(lab.rng.randint(0, 2)):
        newest = checkpoints(folder)[-1]
        child = lab.resume(folder)
        try:
            _kill_one_process(lab, folder, child, newest)
        except MissedError:
            break
        lab.strikes += 1
    return lab.finish(folder, *_TWO_PROCESSES, may_refuse=not _is_run(folder))


def _kill_one_process(lab: Lab, folder: Path, child: Child, before: Path | None = None) -> None:
    """Wait until the processes of a run have trained, kill one of them, and wait until all have ended.

    Args:
        lab: The lab.
        folder: The run.
        child: The process that started the others.
        before: The newest checkpoint before they started.
    """
    with ended_at_exit(child):
        limit = time.monotonic() + HANG
        while checkpoints(folder)[-1:] in ([], [before]) and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        if child.poll() is not None:
            raise MissedError
        family = [child.pid, *_descendants(child.pid)]
        target = lab.rng.choice(family)
        number = lab.rng.choice((signal.SIGKILL, signal.SIGTERM)) if target == child.pid else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, number)
        limit = time.monotonic() + HANG
        while alive := [pid for pid in family if _alive(pid)]:
            child.poll()
            if time.monotonic() > limit:
                raise BrokenError(f"{len(alive)} processes still run {HANG:.0f} s after one was killed")
            time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _is_run(folder: Path) -> bool:
    """Whether the folder holds a run that can be resumed."""
    return (folder / "recipe.toml").is_file() and (folder / "run.json").is_file()


def faults() -> dict[str, tuple[Fault, int]]:
    """List the faults that this machine permits, each with how often it comes in a round."""
    permitted: dict[str, tuple[Fault, int]] = {
        "SIGKILL": (kill, 6),
        "SIGTERM, SIGINT, SIGHUP": (stop, 5),
        "power cut, synced data only": (cut_recorded, 4),
        "file size limit": (small_files, 2),
        "clock jump": (clock, 3),
        "damaged files": (damage, 8),
        "swapped checkpoint": (swap, 3),
        "four starts at once": (start_race, 2),
        "three resumes at once": (resume_race, 3),
    }
    if can_mount():
        permitted["power cut, ext4"] = (cut_on_disk, 4)
        permitted["full disk"] = (full_disk, 2)
    return permitted
