"""Install torchcaps into empty environments and try it: `python scripts/check_install.py [--wheel FILE] [--json FILE]`.

Four environments: with kernels and, where the compiler fails, without; with the required packages alone and with all
extras. The wheels are built here, or that with kernels was built before. The packages they need are linked from the
environment that runs this script, so that nothing is downloaded and no other package can be imported. Times are those
of the processor, which other programs do not change much. scripts/make_tables.py shows results/install.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from make_sbom import closure

from torchcaps.train.environment import provenance

ROOT = Path(__file__).parents[1]
TRAIN = "import torchcaps as tc; tc.train.fit"


def build(folder: Path, *, compiler: bool) -> Path:
    """Build a wheel in a folder, and return it."""
    env = os.environ if compiler else {**os.environ, "CXX": "/bin/false"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def link_packages(names: set[str], site: Path) -> int:
    """Link installed packages into another environment; their size in bytes."""
    size = 0
    for name in names:
        for file in metadata.files(name) or ():
            path = Path(str(file.locate()))
            # Commands and other files outside of the packages are left out.
            if ".." not in file.parts and path.is_file() and "__pycache__" not in file.parts:
                size += path.stat().st_size
            top = file.parts[0]
            source = path.parents[len(file.parts) - 2] if len(file.parts) > 1 else path
            if top not in ("..", "__pycache__") and not (site / top).exists() and source.exists():
                (site / top).symlink_to(source)
    return size


def run(python: Path, *words: str) -> tuple[int, str, float]:
    """Run Python in a folder of its own; exit code, last line of the output and seconds of the processor."""
    start = children_seconds()
    done = subprocess.run(
        [python, *words], capture_output=True, text=True, cwd=python.parent, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else "", children_seconds() - start


def children_seconds() -> float:
    """Return the time of the processor that all ended child processes took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(python: Path, before: str, code: str) -> float:
    """Return the least time of three that a statement takes after another one, each in a new process."""
    timed = f"{before}\nimport time; start = time.process_time()\n{code}\nprint(time.process_time() - start)"
    return round(min(float(run(python, "-c", timed)[1]) for _ in range(3)), 3)


def check(wheel: Path, extras: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Install a wheel into a new environment in a folder, and try it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    start = children_seconds()
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    installed = children_seconds() - start
    own = sum(file.stat().st_size for file in (site / "torchcaps").rglob("*") if "__pycache__" not in file.parts)
    packages = set(closure("torchcaps", extras)) - {"torchcaps"}
    others = link_packages(packages, site)
    code, kernels, _ = run(python, "-c", "from torchcaps.ops import _native; print(_native.instruction_set())")
    smoke = run(python, str(ROOT / "scripts" / "smoke_test.py"))
    train = run(python, "-c", TRAIN)
    return {
        "extras": ",".join(extras) or "none",
        "kernels": kernels if code == 0 else "error",
        "smoke_test": smoke[1],
        "smoke_test_exit": smoke[0],
        "train": "works" if train[0] == 0 else train[1],
        "packages": len(packages),
        "package_mb": round(others / 1e6, 1),
        "wheel_mb": round(wheel.stat().st_size / 1e6, 2),
        "installed_mb": round(own / 1e6, 2),
        "install_seconds": round(installed, 1),
        "import_torch_seconds": seconds(python, "", "import torch"),
        "import_seconds": seconds(python, "import torch", "import torchcaps"),
        "import_nn_seconds": seconds(python, "import torch", "import torchcaps.nn"),
        "version_seconds": round(min(run(python, "-m", "torchcaps", "--version")[2] for _ in range(3)), 2),
    }


def main() -> None:
    """Check the four environments and print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--json", metavar="FILE", help="write what was measured to a file")
    parser.add_argument("--wheel", metavar="FILE", type=Path, help="wheel with kernels (default: one is built)")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        for compiler in (True, False):
            place = Path(name) / ("compiler" if compiler else "none")
            place.mkdir()
            wheel = args.wheel.resolve() if args.wheel and compiler else build(place, compiler=compiler)
            for extras in ((), ("all",)):
                result = {"compiler": compiler, **check(wheel, extras, place / ("full" if extras else "light"))}
                print(json.dumps(result, indent=2))
                results.append(result)
    if args.json:
        found = {"installs": results, **provenance()}
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    # Without a compiler the smoke test, which needs the kernels, must fail with their remedy.
    if any((result["smoke_test_exit"] == 0) != result["compiler"] for result in results):
        sys.exit("smoke_test: expected success with a compiler and the remedy without, see above")


if __name__ == "__main__":
    main()
