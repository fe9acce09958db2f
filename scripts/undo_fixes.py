"""Undo the fix of every finding in tests/fixes.toml, one after the other, and check that its tests fail then.

    python scripts/undo_fixes.py                  # all: about twenty minutes
    python scripts/undo_fixes.py H4 M2            # some findings

A source file is changed only while its tests run, and must have no changes that are not committed. The exit code is 1
if a test passes without the fix that it is for.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TABLE = ROOT / "src" / "torchcaps", ROOT / "tests" / "fixes.toml"
# Exit code of pytest if tests failed. Others, such as 4 and 5, mean that no test ran.
FAILED = 1
# Seconds for each test, also on a busy machine. One that hangs without the fix does not say what is missing.
HANG = 900


def fixes(findings: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the entries of the table, or those of some findings."""
    entries = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fix"]
    return [entry for entry in entries if not findings or entry["finding"] in findings]


def undone(entry: dict[str, Any]) -> str:
    """Return the text of a source file without a fix; a fix that is not found once is an error."""
    text = (SOURCE / entry["file"]).read_text(encoding="utf-8")
    if text.count(entry["old"]) != 1:
        raise ValueError(f"{entry['file']}: expected the fix '{entry['about']}' once, got {text.count(entry['old'])}")
    # A piece of whole lines starts with the end of the line before.
    new = "\n" if entry["old"].startswith("\n") and not entry["new"] else entry["new"]
    return text.replace(entry["old"], new)


@contextmanager
def without(entry: dict[str, Any]) -> Iterator[None]:
    """Undo a fix in the source file for the time of the block."""
    file = SOURCE / entry["file"]
    before, changed = file.read_bytes(), undone(entry)
    compile(changed, str(file), "exec")
    file.write_text(changed, encoding="utf-8")
    try:
        yield
    finally:
        file.write_bytes(before)


def run_tests(tests: Sequence[str], *, quiet: bool = True) -> int:
    """Run tests in a new process that has imported the large libraries, but nothing of torchcaps."""
    process = multiprocessing.get_context("fork").Process(target=_run_tests, args=(tests, quiet))
    process.start()
    process.join(HANG * len(tests))
    if process.exitcode is None:
        process.kill()
        process.join()
    return process.exitcode or 0


def _run_tests(tests: Sequence[str], quiet: bool) -> None:
    if quiet:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    os.chdir(ROOT)
    sys.exit(
        int(pytest.main(["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-m", "slow or not slow", *tests]))
    )


def passing(entry: dict[str, Any]) -> list[str]:
    """Return the tests of a fix that do not fail without it."""
    with without(entry):
        return [test for test in entry["tests"] if run_tests([test]) != FAILED]


def main() -> int:
    """Undo the fixes and print which tests noticed; 1 if one did not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("findings", nargs="*", metavar="FINDING", help="such as H4 (default: all)")
    chosen = fixes(parser.parse_args().findings)
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", SOURCE], cwd=ROOT).returncode:
        raise SystemExit("src/torchcaps: expected no changes that are not committed, got some")
    # Changed sources leave no compiled files. The libraries are imported once.
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for name in ("torch", "lightning.pytorch", "matplotlib.pyplot", "PIL.Image", "fastapi", "httpx"):
        importlib.import_module(name)
    if run_tests(list(dict.fromkeys(test for entry in chosen for test in entry["tests"])), quiet=False) != 0:
        raise SystemExit("tests: expected all to pass with the fixes, got a failure")
    wrong = 0
    for entry in chosen:
        found = passing(entry)
        wrong += len(found)
        print(
            f"{entry['finding']:3} {entry['about']}: {'NOT NOTICED BY ' + ', '.join(found) if found else 'noticed'}",
            flush=True,
        )
    print(f"{len(chosen)} fixes undone; {wrong} tests did not notice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
