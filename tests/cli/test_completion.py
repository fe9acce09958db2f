"""`torchcaps completion`: the scripts, and what bash completes with one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.cli._main import VERBS
from torchcaps.cli.completion import SHELLS
from torchcaps.train import list_recipes


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, as a process prints it."""
    command = [sys.executable, "-m", "torchcaps", "completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = tmp_path_factory.mktemp("bash") / "completion"
    path.write_text(done.stdout, encoding="utf-8")
    return path


def complete(script: Path, *words: str) -> set[str]:
    """What bash offers for the last word."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    code = (
        f'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD={len(words)}; _shtab_torchcaps; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = [bash, "-c", code, "bash", str(script), "torchcaps", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], {"train"}),
        (["train", "mnist_e"], {"mnist_efficient"}),
        (["train", "--find"], {"--find-lr"}),
        (["train", "digits", "--submit", "sl"], {"slurm"}),
        (["models", "matrix_capsnet_s"], {"matrix_capsnet_small"}),
        (["data", "down"], {"download"}),
        (["data", "download", "multi"], {"multimnist"}),
        (["predict", "--pretrained", "fashion"], {"fashion_mnist"}),
        (["eval", "comp"], {"completion"}),
        (["completion", "z"], {"zsh"}),
        (["help", "rec"], {"recipes"}),
    ],
)
def test_bash_completes(script: Path, words: list[str], expected: set[str]) -> None:
    assert complete(script, *words) == expected


def test_bash_lists_all(script: Path) -> None:
    assert complete(script, "") == {*VERBS, "help"}
    assert complete(script, "train", "") == set(list_recipes())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str, ask, ask_json) -> None:
    code, out, err = ask("completion", shell)
    assert (code, err) == (0, "")
    assert all(name in out for name in VERBS)
    document = ask_json("completion", shell)
    assert document["shell"] == shell
    assert document["script"].strip() == out.strip()


def test_unknown_shell(ask) -> None:
    code, _, err = ask("completion", "fish")
    assert code == 2
    assert "'fish'" in err


def test_missing_package_is_one_sentence(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, out, err = ask("completion", "bash")
    assert (code, out) == (2, "")
    assert "shtab" in err
    assert "torchcaps[train]" in err
