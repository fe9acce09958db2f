from __future__ import annotations

import dataclasses
import runpy
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import torchcaps
from torchcaps import __version__
from torchcaps.cli import _main, main
from torchcaps.cli._main import VERBS

COMMAND = [sys.executable, "-m", "torchcaps"]


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; from torchcaps.cli import main; main(['--help']); main(['train', '--help']);"
        "print(*[name for name in ('torch', 'numpy', 'lightning', 'matplotlib', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
    started = time.perf_counter()
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    print(f"torchcaps --help: {time.perf_counter() - started:.2f} s")
    assert all(f"  {name}" in done.stdout for name in VERBS)


def test_no_arguments_print_help(ask) -> None:
    assert ask() == ask("--help") == ask("-h")
    assert ask()[0] == 0


def test_version(ask) -> None:
    assert ask("--version") == ask("-V") == (0, f"torchcaps {__version__}\n", "")


def test_help_command(ask) -> None:
    assert ask("help") == ask("--help")
    assert ask("help", "train") == ask("train", "--help")


@pytest.mark.parametrize("name", VERBS)
def test_every_command_has_help_and_examples(name: str, ask) -> None:
    code, out, err = ask(name, "--help")
    assert (code, err) == (0, "")
    verb = VERBS[name]
    assert f"usage: torchcaps {name}" in out
    assert verb.description.split()[0] in out
    assert 2 <= len(verb.examples) <= 6
    assert all(f"  {command}" in out for command, _ in verb.examples)
    assert all(command.startswith(f"torchcaps {name}") for command, _ in verb.examples)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["trian"], ["unknown command 'trian'", "'train'"]),
        (["help", "trian"], ["unknown command 'trian'", "'train'"]),
        (["models", "--jsn"], ["unknown option '--jsn'", "torchcaps models", "'--json'"]),
        (["models", "--nosuch"], ["unknown option '--nosuch'", "torchcaps models --help"]),
        (["predict", "--version"], ["unknown option '--version'", "torchcaps predict --help"]),
        (["show", "r", "--figure=curves", "--owt=x"], ["unknown option '--owt'", "torchcaps show", "'--out'"]),
        (["models", "a", "b"], ["unexpected argument 'b'", "torchcaps models --help"]),
        (["--json", "models"], ["unknown option '--json'", "after the command"]),
        (["--figure"], ["unknown option '--figure'", "torchcaps --help"]),
        (["show"], ["required", "torchcaps show --help"]),
        (["eval", "r", "--split"], ["--split", "torchcaps eval --help"]),
        (["models", "capsnett"], ["unknown model 'capsnett'", "'capsnet'"]),
    ],
)
def test_error_is_one_message_with_code_2(words: list[str], named: list[str], ask) -> None:
    code, out, err = ask(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert [name for name in named if name not in err] == []


def test_unrelated_options_are_not_suggested(ask) -> None:
    for option in ("--nosuch", "--version"):
        assert "did you mean" not in ask("predict", option)[2]


def test_training_processes_do_not_start_over(capsys: pytest.CaptureFixture[str]) -> None:
    # What multiprocessing does with `python -m torchcaps` in every process that it makes.
    runpy.run_path(str(Path(torchcaps.__file__).with_name("__main__.py")), run_name="__mp_main__")
    assert capsys.readouterr().out == ""


def test_error_in_subprocess() -> None:
    done = subprocess.run([*COMMAND, "models", "capsnett", "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown model 'capsnett'; did you mean 'capsnet'?\n"


def _verb_that_raises(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr(_main, "_run", fail)


def test_unexpected_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, ask) -> None:
    _verb_that_raises(monkeypatch, RuntimeError("two\nlines"))
    code, out, err = ask("models")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "RuntimeError: two lines" in err
    assert "--debug" in err
    with pytest.raises(RuntimeError, match="two"):
        main(["models", "--debug"])


def test_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, ask) -> None:
    def warn(args: object, out: object) -> int:
        warnings.warn("slow today", stacklevel=1)
        return 0

    monkeypatch.setitem(VERBS, "models", dataclasses.replace(VERBS["models"], run=warn))
    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert ask("models") == (0, "", "note: slow today\n")
        assert warnings.showwarning is shown


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch, ask) -> None:
    _verb_that_raises(monkeypatch, KeyboardInterrupt())
    assert ask("models") == (130, "", "stopped\n")


def test_closed_pipe_is_no_error() -> None:
    with subprocess.Popen([*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Closed before the process has started to write.
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141
