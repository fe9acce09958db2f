"""Compute golden hashes, as JSON on the standard output or, with --write, into the files beside this one.

    python tests/golden/compute.py kernels
    python tests/golden/compute.py --write kernels layers training

The instruction set and the number of threads are those of the process; --write starts one process for each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from golden import adapter, cases

HERE = Path(__file__).parent
GROUPS = {"kernels": cases.kernel_cases, "layers": cases.layer_cases, "training": cases.training_cases}
LEVELS = ["portable", "avx2", "avx512"]


def compiler() -> str:
    """What built the library, as the compiler itself wrote it into the file."""
    path = adapter.library_path()
    content = b"" if path is None else path.read_bytes()
    if b"__asan_init" in content:
        return "sanitized build"
    notes = re.findall(rb"(?:GCC: \([^)]*\) [\d.]+|clang version [\d.]+)", content)
    return ", ".join(sorted({note.decode() for note in notes})) or "none"


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text() if cpuinfo.is_file() else "", re.MULTILINE)
    return found[1] if found else platform.processor()


def environment(group: str) -> dict[str, str]:
    """What the bits of a group depend on beside the instruction set."""
    found = {
        "compiler": compiler(),
        "libc": " ".join(platform.libc_ver()),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return found if group == "kernels" else found | {"torch": torch.__version__, "cpu": cpu_name()}


def best_level() -> str:
    """The highest instruction set of this machine, whatever the environment of this process requests."""
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "portable")


def levels() -> list[str]:
    return LEVELS[: LEVELS.index(best_level()) + 1]


def compute(group: str) -> dict[str, cases.Hashes]:
    return {name: run() for name, run in GROUPS[group]()}


def compute_apart(group: str, level: str, threads: list[int]) -> dict[str, dict[str, cases.Hashes]]:
    """The hashes of a group by number of threads, from a process of its own with the given instruction set."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--threads", *map(str, threads), "--", group],
        env={**os.environ, "TORCHCAPS_CPU": level, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    found = json.loads(done.stdout)
    if found["instruction_set"] != level:
        raise RuntimeError(f"instruction set: expected {level}, got {found['instruction_set']}")
    return found["hashes"]


def plan(group: str) -> list[tuple[str, list[int]]]:
    """Which instruction sets a group is computed with, and with how many threads."""
    if group == "training":
        return [(best_level(), [1])]
    return [(level, [1, 2]) for level in (levels() if group == "kernels" else levels()[-1:])]


def stored(group: str) -> dict[str, Any]:
    return json.loads((HERE / f"{group}.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--write", action="store_true", help="store the hashes of all instruction sets")
    args = parser.parse_args()
    for group in args.groups:
        if args.write:
            hashes = {level: compute_apart(group, level, threads) for level, threads in plan(group)}
            record = {"environment": environment(group), "hashes": hashes}
            # One line per case.
            text = re.sub(
                r'\{\s+("[^{}]*?")\s+\}',
                lambda case: "{" + re.sub(r"\s+", " ", case[1]) + "}",
                json.dumps(record, indent=1),
            )
            (HERE / f"{group}.json").write_text(text + "\n")
            continue
        found = {}
        for threads in args.threads:
            torch.set_num_threads(threads)
            found[str(threads)] = compute(group)
        json.dump({"instruction_set": adapter.instruction_set(), "hashes": found}, sys.stdout)


if __name__ == "__main__":
    main()
