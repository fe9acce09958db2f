"""Measure what hostile input does to torchcaps, and record it in results/security.json: ten minutes.

    python scripts/measure_security.py
    python scripts/measure_security.py --inputs 2000 --requests 100 --output /tmp/short.json
    python scripts/measure_security.py --fuzzed FIRST.json SECOND.json --attacked ATTACK.json

Damaged inputs for every reader (scripts/fuzz), requests during an attack (scripts/attack_playground.py), and the peak
memory of a process that reads a folder of image bombs. --fuzzed and --attacked take what these scripts printed with
--json, so that a busy machine can measure in parts; they must have run on the sources of this commit. The exit code is
1 if an input broke a reader or an accepted request was lost.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from torchcaps._files import write_text
from torchcaps.train.environment import provenance

SCRIPTS = Path(__file__).resolve().parent
RESULTS = SCRIPTS.parent / "results" / "security.json"
# Format, side in pixels and mode of the image that takes the most memory within the limits of the readers.
BOMBS = (
    ("PNG", 8900, "RGBA"),
    ("WEBP", 4600, "RGBA"),
    ("JPEG", 8900, "RGB"),
    ("TIFF", 8900, "RGBA"),
    ("GIF", 6500, "P"),
)
FILES = 12
# Read in a process of its own, as on a machine with many cores. VmHWM is its peak; ru_maxrss is also its parent's.
READ = r"""
import os, re, sys
from pathlib import Path
from torchcaps.data import load_data
os.cpu_count = lambda: 64
try:
    load_data("folder", "train+val", path=sys.argv[1], image_size=32, channels=3)
except Exception as error:
    print(error, file=sys.stderr)
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def bomb(kind: str, side: int, mode: str) -> dict[str, Any]:
    """Read a folder of images of one format that are small as files; return their size and the peak memory."""
    content = io.BytesIO()
    options = {"JPEG": {"progressive": True, "subsampling": 0}, "TIFF": {"compression": "tiff_adobe_deflate"}}
    Image.new(mode, (side, side)).save(content, kind, **options.get(kind, {}))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            file = Path(folder) / ("cat", "dog")[number % 2] / f"{number}.png"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content.getvalue())
        done = subprocess.run([sys.executable, "-c", READ, folder], capture_output=True, text=True, check=True)
    sizes = {"side": side, "files": FILES, "bytes_each": len(content.getvalue())}
    return {"format": kind, **sizes, "peak_mb": int(done.stdout), "message": done.stderr.strip()}


def fuzzing(seed: int, inputs: int) -> str:
    """Damage inputs with a seed; return the counts as JSON."""
    words = [str(SCRIPTS / "fuzz"), "--seconds", "7200", "--seed", str(seed), "--inputs", str(inputs), "--json"]
    return _output(words)


def added(texts: Sequence[str]) -> dict[str, Any]:
    """Add the counts of several seeds."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    parts = [json.loads(text) for text in texts]
    for done in parts:
        counts.update(done["per_reader"])
        findings += done["findings"]
    seconds = round(sum(done["cpu_seconds"] for done in parts), 1)
    found = {"findings": sorted(set(findings)), "cpu_seconds": seconds}
    seeds = [done["seed"] for done in parts]
    return {"inputs": counts.total(), "seeds": seeds, **found, "per_reader": dict(sorted(counts.items()))}


def _output(words: Sequence[str]) -> str:
    """Run a script, and return its output: its exit code is 1 if it found something."""
    done = subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{words[0]}: expected exit code 0 or 1, got {done.returncode}")
    return done.stdout


def main() -> int:
    """Measure, and write the file; 1 if there is a finding or a lost request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[31, 32], help="seeds of the damage (default: 31 32)")
    parser.add_argument("--inputs", type=int, default=510_000, help="damaged inputs of each seed (default: 510000)")
    parser.add_argument("--requests", type=int, default=5000, help="requests during the attack (default: 5000)")
    parser.add_argument("--fuzzed", type=Path, nargs="+", metavar="FILE", help="results of scripts/fuzz --json")
    parser.add_argument("--attacked", type=Path, metavar="FILE", help="result of scripts/attack_playground.py --json")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE", help="default: results/security.json")
    args = parser.parse_args()
    # Before the file is written, which changes the tree.
    about = {"date": datetime.now(UTC).date().isoformat(), **provenance()}
    words = [str(SCRIPTS / "attack_playground.py"), "--requests", str(args.requests), "--json"]
    attack = json.loads(args.attacked.read_text() if args.attacked else _output(words))
    seeds = (fuzzing(seed, args.inputs) for seed in args.seeds)
    fuzzed = added([file.read_text() for file in args.fuzzed] if args.fuzzed else list(seeds))
    table = {**about, "fuzzing": fuzzed, "attack": attack, "bombs": [bomb(*each) for each in BOMBS]}
    write_text(args.output, json.dumps(table, indent=1) + "\n")
    print(f"{fuzzed['inputs']:,} inputs, {len(fuzzed['findings'])} findings; requests: {attack['outcomes']}")
    lost = any(name.startswith("lost") for name in (*attack["outcomes"], *attack["at_sigterm"]))
    return 1 if lost or fuzzed["findings"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
