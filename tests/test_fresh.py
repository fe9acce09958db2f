from __future__ import annotations

from pathlib import Path

from fresh import run_fresh


def test_output_and_exit_codes(tmp_path: Path) -> None:
    done = run_fresh(
        "import os, sys; print(os.getcwd(), os.environ['X']); print('err', file=sys.stderr)", tmp_path, X="1"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path} 1\n", "err\n")
    assert run_fresh("import sys; sys.exit(3)").returncode == 3
    assert run_fresh("import sys; sys.exit(True)").returncode == 1
    failed = run_fresh("1 / 0")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_pieces_do_not_see_each_other() -> None:
    code = "import sys; print('torch' in sys.modules, 'torchcaps' in sys.modules, 'found' in globals()); found = 1"
    for more in ("", "; import torchcaps", ""):
        assert run_fresh(code + more).stdout == "True False False\n"
