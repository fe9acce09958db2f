"""Feed damaged input to every reader: success and an error of torchcaps are the only allowed results.

    make fuzz                                   # ten minutes
    python scripts/fuzz --seconds 60 --seed 7 --readers image recipe --json

Small valid inputs of each format are truncated, flipped, repeated, spliced and overwritten with extreme values. Any
other exception, a hang, more than 5 seconds of processor time, or more memory than a small input needs is a finding:
its input is written to the folder of --keep, which `tests/scripts/test_fuzz.py` replays, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _engine import CURRENT, KEPT, fuzz, keep_input, working_folder
from _readers import READERS


def main() -> int:
    """Fuzz, and print the number of inputs of each reader and the findings; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="time limit (default: 600)")
    parser.add_argument("--inputs", type=int, help="number of inputs after which to stop (default: no limit)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage (default: 0)")
    parser.add_argument("--readers", nargs="+", choices=tuple(READERS), metavar="NAME", help="default: all")
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for inputs that break a reader")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.place is None:
        done = supervise(sys.argv[1:], args.keep)
    else:
        done = fuzz(args.seconds, args.seed, args.readers, args.inputs, args.keep, args.place).summary()
    if args.json or args.place is not None:
        print(json.dumps({"seed": args.seed, **done}, indent=1))
    else:
        print("\n".join(f"{name:16}{count:>12,}" for name, count in done["per_reader"].items()))
        print(f"{'all':16}{done['inputs']:>12,}")
        print("\n".join(done["findings"]) or "nothing found")
    return 1 if done["findings"] else 0


def supervise(words: list[str], keep: Path) -> dict[str, Any]:
    """Fuzz in another process, so that an input that ends it is a finding like any other; return the totals."""
    with working_folder() as place:
        command = [sys.executable, str(Path(__file__).parent), *words, "--place", str(place)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode in (0, 1) and done.stdout:
            return json.loads(done.stdout)
        current = place / CURRENT
        name, _, content = current.read_bytes().partition(b"\n") if current.exists() else (b"start", b"", b"")
        if current.exists():
            keep_input(name.decode(), content, keep)
        finding = f"{name.decode()}: the process ended with code {done.returncode}"
        return {"inputs": 0, "per_reader": {}, "cpu_seconds": 0.0, "findings": [finding]}


if __name__ == "__main__":
    sys.exit(main())
