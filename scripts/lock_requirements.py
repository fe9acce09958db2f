"""Write constraints.txt again, with the hashes of its packages: `python scripts/lock_requirements.py`.

Add a package as `name==version` first, with all packages that it needs. pip then downloads each package as on any other
installation, and its hashes are written beside the version. A hash that the file has for the same version is kept: it
may be that of another machine, whose pip takes another file, as for torch with and without CUDA.

`pip install --require-hashes --no-deps -r constraints.txt` installs them; `make .venv/ready` does so before it installs
torchcaps itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "constraints.txt"
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")


def read_pins(text: str) -> dict[str, tuple[str, list[str]]]:
    """Return version and hashes of each package, by name."""
    pins: dict[str, tuple[str, list[str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := _PIN.match(line):
            pins[match[1]] = (match[2], _HASH.findall(line))
    return pins


def format_pins(pins: dict[str, tuple[str, list[str]]]) -> str:
    """Return the content of the file, sorted by name."""
    blocks = []
    for name, (version, hashes) in sorted(pins.items(), key=lambda item: item[0].lower()):
        blocks.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash={each}" for each in sorted(set(hashes)))]))
    return "\n".join(blocks) + "\n"


def normalised(name: str) -> str:
    """Return a name as package indices compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_hashes(pins: dict[str, tuple[str, list[str]]]) -> dict[str, str]:
    """Return the hash of the file that pip takes for each package on this machine."""
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place) / "plain.txt"
        plain.write_text("".join(f"{name}=={version}\n" for name, (version, _) in pins.items()))
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
        command += ["--report", str(Path(place) / "report.json"), "--requirement", str(plain)]
        subprocess.run(command, check=True)
        report = json.loads((Path(place) / "report.json").read_text())
    return {normalised(item["metadata"]["name"]): _hash(item["download_info"]) for item in report["install"]}


def _hash(download: dict[str, Any]) -> str:
    known = download.get("archive_info", {}).get("hashes", {}).get("sha256")
    if known is None:
        # pip reports no hash of a file on this machine.
        known = hashlib.sha256(Path(unquote(urlsplit(download["url"]).path)).read_bytes()).hexdigest()
    return f"sha256:{known}"


def main() -> None:
    """Find the hashes and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    pins = read_pins(FILE.read_text())
    found = find_hashes(pins)
    locked = {name: (version, [*old, found[normalised(name)]]) for name, (version, old) in pins.items()}
    FILE.write_text(format_pins(locked))


if __name__ == "__main__":
    main()
