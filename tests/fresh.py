"""Run code in a process that has imported nothing but torch and NumPy: `run_fresh("import torchcaps.nn; ...")`.

Importing torch takes seconds, and many tests look at what a module imports after it. One process per worker imports
torch, and forks for each piece of code.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SERVER = """
import json, os, sys
import numpy, torch

def next_task():
    while line := sys.stdin.readline():
        task = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for number, file in enumerate((os.devnull, task["out"], task["err"])):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY, 0o600), number)
            os.chdir(task["folder"])
            os.environ.update(task["variables"])
            return task
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    # Without the end of Python, which would report a closed pipe.
    os._exit(0)

task = next_task()
del next_task, json, os
exec(compile(task.pop("code"), "<string>", "exec"), {"__name__": "__main__"})
"""


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVER]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        server.communicate(timeout=60)


def run_fresh(code: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code as `python -c` does, after `import torch`.

    Args:
        code: The code.
        folder: Its working folder. Default: the current one.
        variables: Variables of its environment that differ.

    Returns:
        Exit code and output.
    """
    place = str(folder or Path.cwd())
    if not hasattr(os, "fork"):
        environment = {**os.environ, **variables}
        return subprocess.run(
            [sys.executable, "-c", code], cwd=place, env=environment, capture_output=True, text=True, check=False
        )
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as name:
        out, err = Path(name) / "out", Path(name) / "err"
        task = {"code": code, "out": str(out), "err": str(err), "folder": place, "variables": variables}
        server.stdin.write(json.dumps(task) + "\n")
        server.stdin.flush()
        code_of_exit = int(server.stdout.readline())
        return subprocess.CompletedProcess(code, code_of_exit, out.read_text(), err.read_text())
