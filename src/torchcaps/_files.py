"""Atomic and durable writes, and bounded reads of files by others.

After a crash or a power cut a file is the old one or the new one, whole.

The content goes to a temporary file in the same folder, which is flushed to disk and renamed; then the folder is
flushed. A symbolic link at the target is replaced, never followed. Where a disk is full or a folder read-only, the
temporary file is removed and a `WriteError` names the file and the reason.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from torchcaps.errors import WriteError

SUFFIX = ".part"
# Far more than any text file of a run takes. JSON objects may take 25 times the bytes of their text.
MAX_TEXT = 2**25
# Far more than the weights, predictions or a checkpoint of any network here take.
MAX_TENSORS = 2**33


class _File(io.FileIO):
    """A file that remembers its first error: torch.save replaces an error of the disk by one of its own."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = self.error or error
            raise


def open_regular(path: str | Path, max_bytes: int | None = None) -> io.BufferedReader:
    """Open a regular file for reading, without waiting for the writer of a pipe.

    Args:
        path: The file, or a link to it.
        max_bytes: Its largest size; None for any.

    Returns:
        The open file.

    Raises:
        OSError: If it is missing, larger, or a pipe, a device or a folder.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if max_bytes is not None and status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"{status.st_size:,} bytes, more than {max_bytes:,}")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: str | Path, max_bytes: int = MAX_TEXT) -> bytes:
    """Read a regular file that may come from somebody else.

    Args:
        path: The file.
        max_bytes: Its largest size.

    Returns:
        The content.

    Raises:
        OSError: If it is missing, larger, or a pipe, a device or a folder.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.txt"
        >>> write_text(file, "x")
        >>> read_bounded(file)
        b'x'
    """
    with open_regular(path, max_bytes) as file:
        return file.read()


def write_text(path: str | Path, text: str) -> None:
    """Replace a file by a text in UTF-8.

    Args:
        path: The file.
        text: Its new content.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.txt"
        >>> write_text(file, "x")
        >>> file.read_text()
        'x'
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace a file by some bytes.

    Args:
        path: The file.
        content: Its new content.
    """
    with replacing(path) as file:
        file.write(content)


def create_text(path: str | Path, text: str) -> bool:
    """Create a file with a text in UTF-8, unless there is one: of several processes or hosts, one succeeds.

    A crash may leave the file without its content. Exclusive creation is atomic on network file systems too.

    Args:
        path: The file.
        text: Its content.

    Returns:
        Whether this call created the file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "a.txt"
        >>> create_text(file, "first"), create_text(file, "second"), file.read_text()
        (True, False, 'first')
    """
    path = Path(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        raise cannot_write(path, error) from error
    with naming(path), os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())
        sync_folder(path.parent)
    return True


def write_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Replace a file by a figure of Matplotlib, in the format of its suffix.

    Args:
        path: The file.
        figure: The figure.
        **options: Options of `savefig`.
    """
    write_bytes(path, figure_bytes(figure, Path(path).suffix[1:].lower(), **options))


def figure_bytes(figure: Any, kind: str, **options: Any) -> bytes:
    """Return a figure of Matplotlib as the content of a file.

    Args:
        figure: The figure.
        kind: The format, such as "png".
        **options: Options of `savefig`.

    Returns:
        The content.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` if the block succeeds, and is removed if it fails.

    Args:
        path: The file to replace.

    Yields:
        The temporary file, open for writing.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}{SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        raw = _File(os.open(part, flags, 0o666), "wb")
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with io.BufferedWriter(raw) as file:
            yield file
            with naming(path):
                file.flush()
                os.fsync(file.fileno())
        with naming(path):
            part.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        if raw.error is not None:
            raise cannot_write(path, raw.error) from raw.error
        raise


@contextmanager
def appending(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file to continue it, such as a broken download, and flush it to disk at the end of the block.

    Args:
        path: The file; it is created if it is missing, and must not be a symbolic link.

    Yields:
        The file, open for writing at its end.
    """
    path = Path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with naming(path):
        descriptor = os.open(path, flags, 0o666)
    with os.fdopen(descriptor, "ab") as file:
        try:
            yield file
        finally:
            file.flush()
            os.fsync(file.fileno())


def move(source: Path, target: Path) -> Path:
    """Rename a file or folder whose content is on disk already, durably.

    Args:
        source: The file or folder.
        target: Its new path, in the same file system; a file there is replaced.

    Returns:
        The new path.
    """
    with naming(target):
        source.replace(target)
        for folder in {source.parent, target.parent}:
            sync_folder(folder)
    return target


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn an error of the system into a `WriteError` that names the file or folder.

    Args:
        path: The file or folder that the block writes.

    Yields:
        Nothing.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> WriteError:
    """Return the error for a file that cannot be written.

    Args:
        path: The file.
        error: The error of the system.

    Returns:
        The error, with the same `errno`.
    """
    raised = WriteError(f"file: expected to write '{path}', got an error ({error.strerror or error})")
    raised.errno = error.errno
    return raised


def make_folder(path: str | Path) -> Path:
    """Make a folder durably, with its parents; a folder that exists is kept, a symbolic link is refused.

    Args:
        path: The folder.

    Returns:
        The path.
    """
    path = Path(path)
    with naming(path):
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "a symbolic link")
        if not path.is_dir():
            if not path.parent.is_dir():
                make_folder(path.parent)
            try:
                path.mkdir(exist_ok=True)
            except FileExistsError:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            sync_folder(path.parent)
    return path


def sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, on systems that can.

    Args:
        folder: The folder.
    """
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems cannot flush a folder.
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_parts(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; only for a folder that no other process writes to.

    Args:
        folder: The folder.
    """
    for part in folder.glob(f".*{SUFFIX}"):
        with suppress(OSError):
            part.unlink()
