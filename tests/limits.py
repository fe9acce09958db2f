"""Limits of memory, so that code that reserves too much fails instead of filling the machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Let the process reserve this number of bytes beyond what it has; more is a MemoryError, or one of torch.

    Without effect on systems that do not tell how much a process has (Windows, macOS).

    Args:
        more_bytes: Number of bytes.

    Yields:
        Nothing.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _bytes("VmSize") + more_bytes
    allowed = [each for each in (limit, soft, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(allowed), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Measure how far the memory of the process grows within a block; 0 on systems that do not tell it.

    Yields:
        A list, empty until the block ends, then with the number of bytes.
    """
    with suppress(OSError):
        # Forget the peak so far.
        Path("/proc/self/clear_refs").write_text("5")
    before, found = _bytes("VmRSS"), list[int]()
    try:
        yield found
    finally:
        found.append(_bytes("VmHWM") - before)


def _bytes(name: str) -> int:
    with suppress(OSError):
        match = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        return 1024 * int(match[1]) if match else 0
    return 0


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error, or one that it was raised for, is that memory could not be reserved.

    Args:
        error: The error.

    Returns:
        Whether it is.
    """
    seen: BaseException | None = error
    while seen is not None:
        # torch has no class of its own for it.
        if isinstance(seen, MemoryError) or "can't allocate memory" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
