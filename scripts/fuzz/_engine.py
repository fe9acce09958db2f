"""The fuzzer: damage inputs, run readers, count and keep what breaks them."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import signal
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _readers import READERS
from _seeds import ROOT, seeds

from limits import memory_limit, peak_memory, ran_out_of_memory
from torchcaps.errors import TorchcapsError

KEPT = ROOT / "tests" / "data" / "found_by_fuzzing"
# The input that is being read, after the name of its reader and a line break.
CURRENT = "current"
# Limits for an input of a few kB. Memory is that of Python, beside the pixels of an image, which Pillow allocates.
MAX_MEMORY, MAX_CPU_SECONDS, MAX_SECONDS, MAX_MESSAGE = 64_000_000, 5.0, 120.0, 5_000
# What the process may grow by, all libraries included, and what it may reserve: more is refused by the system.
MAX_GROWTH, MAX_RESERVED = 256_000_000, 1_500_000_000
# Memory is traced for one of this number of inputs: tracing takes several times as long as most readers.
TRACED = 16
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
# Values for text formats.
_VALUES = (
    *(b"true", b"null", b"-1", b"0", b"1e999", b"NaN", b"-inf", b'""', b"[]", b"{}", b"'x'", b'"\\ud800"', b"[[[[]]]]"),
    *(b"9" * 20, b"9" * 6000, b"[" * 3000, b"\xff\xfe", b"\0", b'"../../x"', b'"\\u001b[2J"', b"1.5", b"2147483648"),
)
_VALUE = re.compile(rb"(?<=[:=,\[\n])[ ]*[^,\]}\n:=]+")


class HangError(BaseException):
    """A reader that takes longer than the limit; not an Exception, so that no reader catches it."""


@dataclass
class Tally:
    """Inputs and processor time of each reader, and the findings."""

    inputs: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return the totals for --json."""
        return {
            "inputs": sum(self.inputs.values()),
            "per_reader": dict(sorted(self.inputs.items())),
            "cpu_seconds": round(sum(self.cpu_seconds.values()), 1),
            "findings": sorted(set(self.findings)),
        }


def damage(content: bytes, draw: random.Random, others: Sequence[bytes]) -> bytes:
    """Return the content with one to four random changes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(data) + 1) if draw.random() < 0.5 else min(len(data), draw.randrange(256))
        kind = draw.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1 and data:
            data[min(at, len(data) - 1)] ^= 1 << draw.randrange(8)
        elif kind == 2:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 3:
            size = draw.choice((2, 4, 8))
            data[at : at + size] = draw.choice(_NUMBERS).to_bytes(8, draw.choice(("little", "big")))[:size]
        elif kind == 4:
            del data[at : at + draw.randrange(1, 64)]
        elif kind == 5:
            data[at:at] = data[at : at + draw.randrange(1, 64)] * draw.choice((1, 2, 50))
        elif kind == 6:
            match = _VALUE.search(data, max(0, at - 64))
            start, end = match.span() if match else (at, at)
            data[start:end] = draw.choice(_VALUES)
        else:
            other = draw.choice(others)
            start = draw.randrange(len(other))
            data[at:at] = other[start : start + draw.randrange(1, 200)]
    return bytes(data)


def run_reader(name: str, content: bytes, place: Path, *, traced: bool = True) -> str | None:
    """Return what a reader does wrong with this content, or None."""
    path = place / "file.png"
    path.write_bytes(content)
    # What remains of an input that ends the process.
    (place / CURRENT).write_bytes(name.encode() + b"\n" + content)
    peak, growth, before = 0, [0], time.process_time()
    if traced:
        tracemalloc.start()
    try:
        with warnings.catch_warnings(), _time_limit(), peak_memory() as growth, memory_limit(MAX_RESERVED):
            warnings.simplefilter("ignore")
            READERS[name](path)
    except TorchcapsError as error:
        if ran_out_of_memory(error):
            return f"more than {MAX_RESERVED:,} bytes of memory reserved: {error}"[:300]
        if len(str(error)) > MAX_MESSAGE:
            return f"a message of {len(str(error)):,} characters"
    except (Exception, HangError) as error:
        return f"{type(error).__name__}: {error}"[:300]
    finally:
        if traced:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    if time.process_time() - before > MAX_CPU_SECONDS:
        return f"more than {MAX_CPU_SECONDS:g} seconds of processor time"
    if growth[0] > MAX_GROWTH:
        return f"{growth[0]:,} bytes of memory for {len(content):,}, beside those of Python"
    return f"{peak:,} bytes of memory for {len(content):,}" if peak > MAX_MEMORY else None


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise HangError(f"more than {MAX_SECONDS:g} seconds")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def _quiet() -> Iterator[None]:
    """Write no log: a failed request is a finding anyway."""
    logger = logging.getLogger("torchcaps.serving.middleware")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def working_folder() -> Iterator[Path]:
    """Make a temporary folder, in memory where the system has such a place."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as place:
        yield Path(place)


def fuzz(
    seconds: float,
    seed: int,
    readers: Sequence[str] | None = None,
    inputs: int | None = None,
    keep: Path | None = None,
    place: Path | None = None,
) -> Tally:
    """Damage inputs until the time is over or their number is reached.

    The next reader is the one with the least processor time so far, so that each has the same share. `place` is the
    folder to work in; None for a temporary one.
    """
    if place is None:
        with working_folder() as place:
            return fuzz(seconds, seed, readers, inputs, keep, place)
    draw, corpus = random.Random(seed), seeds()
    everything = [content for contents in corpus.values() for content in contents]
    names = list(READERS) if readers is None else list(readers)
    tally = Tally(dict.fromkeys(names, 0), dict.fromkeys(names, 0.0))
    end = time.monotonic() + seconds
    with _quiet():
        for name in names:
            # The first call imports modules and makes the folders of the reader.
            run_reader(name, corpus[name][0], place, traced=False)
        while time.monotonic() < end and (inputs is None or sum(tally.inputs.values()) < inputs):
            name = min(names, key=lambda each: tally.cpu_seconds[each])
            for _ in range(16):
                content = damage(draw.choice(corpus[name]), draw, everything)
                before = time.process_time()
                wrong = run_reader(name, content, place, traced=tally.inputs[name] % TRACED == 0)
                tally.inputs[name] += 1
                tally.cpu_seconds[name] += time.process_time() - before
                if wrong is not None:
                    tally.findings.append(f"{name}: {wrong}")
                    keep_input(name, content, keep)
    return tally


def keep_input(name: str, content: bytes, keep: Path | None) -> None:
    """Write an input to the folder of those that break a reader, if there is one."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}").write_bytes(content)
