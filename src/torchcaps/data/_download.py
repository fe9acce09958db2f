"""Downloads that can break off: resumed where they stopped, and never taken for whole before the checksum holds."""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from torchcaps.data._bounded import CHUNK

# Seconds without a byte from a mirror before it is asked again, or the next one is.
TIMEOUT = 20
# How often one mirror is asked to go on after it broke off.
ATTEMPTS = 4

Progress = Callable[[int, int], None]


class DownloadError(OSError):
    """No mirror gave the file; the message says of each what went wrong."""


def download(
    urls: Sequence[str], target: Path, is_right: Callable[[Path], bool], *, most: int, progress: Progress | None = None
) -> Path:
    """The first of these addresses that gives the right file, which then takes its place at `target` in one move.

    What came before a connection broke is kept beside it as `<name>.part`; the next attempt, here or in another
    process later, asks only for the rest. A file that is not right, or larger than `most` bytes, leaves nothing behind.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    failures: list[str] = []
    with _locked(target.with_name(f"{target.name}.lock")):
        # Another process may have fetched it while this one waited.
        if target.exists():
            return target
        with part.open("ab") as file:
            # Whoever wrote it may have been ended just before the last move.
            whole = file.tell() > 0 and is_right(part)
            for url in () if whole else urls:
                reason = _try(url, file, is_right, part, most, progress)
                whole = reason is None
                if whole:
                    break
                failures.append(f"{url.rpartition('/')[0]}/: {reason}")
        if whole:
            return part.replace(target)
        if not part.stat().st_size:
            part.unlink()
    raise DownloadError("; ".join(failures) or "no mirror is known")


def _try(
    url: str, file: BinaryIO, is_right: Callable[[Path], bool], part: Path, most: int, progress: Progress | None
) -> str | None:
    """None once the whole and right file is there; else what went wrong with this mirror."""
    reason = ""
    for _ in range(ATTEMPTS):
        before = file.seek(0, 2)
        try:
            _stream(url, file, most, progress)
        # A mirror can fail in many ways (no network, no such page, a broken connection): each leads on.
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = error.reason if isinstance(error, urllib.error.URLError) else error
            reason = " ".join(str(cause).split())[:120] or type(error).__name__
            if file.seek(0, 2) != before:
                continue
            return reason
        finally:
            file.flush()
        if is_right(part):
            return None
        file.truncate(0)
        # What was there before may have been to blame: from the start once more.
        if before:
            continue
        return "wrong checksum"
    return reason or "wrong checksum"


def _stream(url: str, file: BinaryIO, most: int, progress: Progress | None) -> None:
    have = file.seek(0, 2)
    headers = {"User-Agent": "torchcaps", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        # Closed here, or its connection would stay open as long as the exception is remembered.
        error.close()
        if error.code == 416:
            file.truncate(0)
        raise OSError(f"HTTP {error.code} {error.reason}") from None
    with answer:
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise OSError("a web page in the place of the file")
        start = _start(answer, have)
        file.truncate(start)
        length = answer.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else 0
        if max(total, start) > most:
            raise OSError(f"{total:,} bytes announced, expected at most {most:,}")
        _copy(answer, file, total, most, progress)


def _start(answer: Any, have: int) -> int:
    if answer.status != 206:
        # This mirror cannot go on in the middle; it sends all again.
        return 0
    first = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    if first is None or int(first[1]) != have:
        raise OSError("another range than the one asked for")
    return have


def _copy(answer: Any, file: BinaryIO, total: int, most: int, progress: Progress | None) -> None:
    done = file.seek(0, 2)
    while chunk := answer.read1(CHUNK):
        done += len(chunk)
        if done > most:
            file.truncate(0)
            raise OSError(f"more than {most:,} bytes")
        file.write(chunk)
        if progress is not None:
            progress(done, max(total, done))
    if done < total:
        raise OSError(f"broke off after {done:,} of {total:,} bytes")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process, however that ends."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it before has removed it: this one has to be made anew.
            if not _is_at(file, path):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
