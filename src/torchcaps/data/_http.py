"""HTTP downloads that resume after a broken connection and end only with a matching checksum."""

from __future__ import annotations

import http.client
import logging
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from torchcaps._extras import explain_missing
from torchcaps._files import appending, make_folder, move, naming
from torchcaps.data.readers._limited_io import CHUNK

# Seconds without a byte before a mirror is tried again, or the next one.
TIMEOUT = 20
# Resumptions per mirror.
ATTEMPTS = 4

Progress = Callable[[int, int], None]


logger = logging.getLogger(__name__)


class DownloadError(OSError):
    """No mirror gave the file; the message has the reason for each."""


def download(
    urls: Sequence[str],
    target: Path,
    is_right: Callable[[Path], bool],
    *,
    max_bytes: int,
    progress: Progress | None = None,
) -> Path:
    """Download a file from the first address that gives the right one, and move it to `target`.

    The start of a broken download is kept as `<name>.part`, and the next attempt requests the rest, also in another
    process. A wrong file, or one of more than `max_bytes`, is deleted.
    """
    if not target.parent.is_dir():
        make_folder(target.parent)
    part = target.with_name(f"{target.name}.part")
    failures: list[str] = []
    with _locked(target.with_name(f"{target.name}.lock")):
        # Another process may have downloaded it in the meantime.
        if target.exists():
            return target
        # After a power cut, the name must not refer to a file without its data.
        with appending(part) as file:
            # The process that wrote it may have ended just before the move.
            complete = file.tell() > 0 and is_right(part)
            for url in () if complete else urls:
                reason = _try(url, file, is_right, part, max_bytes, progress)
                complete = reason is None
                logger.info("download of %s: %s", url, reason or "complete")
                if complete:
                    break
                failures.append(f"{url.rpartition('/')[0]}/: {reason}")
        if complete:
            return move(part, target)
        if not part.stat().st_size:
            part.unlink()
    raise DownloadError("; ".join(failures) or "no mirror is known")


def _try(
    url: str, file: BinaryIO, is_right: Callable[[Path], bool], part: Path, max_bytes: int, progress: Progress | None
) -> str | None:
    """Download from one mirror; return None for the right file, else the reason of the failure."""
    reason = ""
    for _ in range(ATTEMPTS):
        before = file.seek(0, 2)
        try:
            _stream(url, file, max_bytes, progress)
        # No network, no such page, a broken connection: the next attempt or mirror follows.
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
        # The earlier part may be the wrong one: download all of it again.
        if before:
            continue
        return "wrong checksum"
    return reason or "wrong checksum"


def _stream(url: str, file: BinaryIO, max_bytes: int, progress: Progress | None) -> None:
    have = file.seek(0, 2)
    headers = {"User-Agent": "torchcaps", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        # The exception would keep the connection open.
        error.close()
        if error.code == 416:
            file.truncate(0)
        raise OSError(f"HTTP {error.code} {error.reason}") from None
    with response:
        if "text/html" in response.headers.get("Content-Type", ""):
            raise OSError("got a web page")
        start = _start(response, have)
        file.truncate(start)
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else 0
        if max(total, start) > max_bytes:
            raise OSError(f"{total:,} bytes announced, expected at most {max_bytes:,}")
        _copy(response, file, total, max_bytes, progress)


def _start(response: Any, have: int) -> int:
    if response.status != 206:
        # The mirror does not support ranges and sends the whole file.
        return 0
    first = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if first is None or int(first[1]) != have:
        raise OSError("got another range than requested")
    return have


def _copy(response: Any, file: BinaryIO, total: int, max_bytes: int, progress: Progress | None) -> None:
    done = file.seek(0, 2)
    while chunk := response.read1(CHUNK):
        done += len(chunk)
        if done > max_bytes:
            file.truncate(0)
            raise OSError(f"more than {max_bytes:,} bytes")
        file.write(chunk)
        if progress is not None:
            progress(done, max(total, done))
    if done < total:
        raise OSError(f"connection lost after {done:,} of {total:,} bytes")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process in at a time; the lock ends with the process, and its file is removed."""
    with explain_missing():
        from filelock import FileLock

    lock = FileLock(path)
    with naming(path):
        lock.acquire()
    try:
        yield
    finally:
        # While it is locked: a process that waits for the removed file tries again with a new one. An open file cannot
        # be removed on Windows, where filelock does it.
        if os.name != "nt":
            path.unlink()
        lock.release()
