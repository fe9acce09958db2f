"""Options of every command: --quiet, --log-level, --import, and what the environment sets instead of them."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from torchcaps.cli import _main, main
from torchcaps.cli._main import VERBS
from torchcaps.models import MODELS

COMMAND = [sys.executable, "-m", "torchcaps"]
PLUGIN = """
import torchcaps as tc

@tc.register_model("{name}")
def {name}(image_shape, num_classes):
    '''A small network under a name of its own.'''
    return tc.create_model("cnn_small", image_shape, num_classes)
"""


@pytest.mark.parametrize("name", VERBS)
def test_every_command_has_the_common_options(name: str) -> None:
    known = {option for action in VERBS[name].parser()._actions for option in action.option_strings}
    assert {"--json", "-q", "--quiet", "--log-level", "--import", "--debug", "-h", "--help"} <= known


def test_quiet_leaves_notes_out(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(args, out) -> int:
        warnings.simplefilter("always")
        warnings.warn("look here", stacklevel=1)
        out.say("result")
        return 0

    monkeypatch.setitem(_main.VERBS, "info", _replace(VERBS["info"], warn))
    assert ask("info") == (0, "result\n", "note: look here\n")
    assert ask("info", "-q") == ask("info", "--quiet") == (0, "result\n", "")


def _replace(verb, run):
    return dataclasses.replace(verb, run=run)


def test_log_level(ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def log(args, out) -> int:
        for level in ("debug", "info", "warning"):
            getattr(logging.getLogger("torchcaps.example"), level)("at %s", level)
        return 0

    monkeypatch.setitem(_main.VERBS, "info", _replace(VERBS["info"], log))

    def levels(*words: str) -> list[str]:
        return re.findall(r"torchcaps\.example: at (\w+)", ask("info", *words)[2])

    assert levels() == ["warning"]
    assert levels("--log-level", "debug") == ["debug", "info", "warning"]
    monkeypatch.setenv("TORCHCAPS_LOG", "INFO")
    assert levels() == ["info", "warning"]
    assert levels("--log-level", "error") == []
    monkeypatch.setenv("TORCHCAPS_LOG", "loud")
    code, _, err = ask("info")
    assert code == 2
    assert "TORCHCAPS_LOG" in err
    assert "'loud'" in err


def test_training_logs_its_checkpoints(ask, tmp_path: Path, pictures: Path) -> None:
    small = ["model.name=capsnet_small", "trainer.epochs=1", "data.batch_size=16", "loss.reconstruction=0.01"]
    words = ["train", str(pictures), *small, "optim.warmup=0", "trainer.accelerator=cpu", "--no-report", "-q"]
    code, _, err = ask(*words, "--out", str(tmp_path / "run"), "--log-level", "info")
    assert code == 0, err
    assert "INFO torchcaps.train.checkpoint: checkpoint: " in err


def test_colours(tmp_path: Path) -> None:
    def colours(**env: str) -> int:
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        done = subprocess.run([*COMMAND, "routers"], capture_output=True, text=True, check=True, env={**clean, **env})
        return len(re.findall(r"\x1b\[[0-9;]*3[0-7]m", done.stdout))

    assert colours() == 0
    assert colours(FORCE_COLOR="1") > 0
    assert colours(FORCE_COLOR="1", NO_COLOR="1") == 0


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A module in the working folder that registers a model."""
    (tmp_path / "my_plugin.py").write_text(PLUGIN.format(name="net_of_a_plugin"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TORCHCAPS_IMPORT", "")
    yield "net_of_a_plugin"
    sys.modules.pop("my_plugin", None)
    MODELS._items.pop("net_of_a_plugin", None)


def test_commands_know_models_of_a_module(plugin: str, ask) -> None:
    assert ask("models", plugin)[0] == 2
    code, out, _ = ask("models", plugin, "--import", "my_plugin")
    assert code == 0
    assert "under a name of its own" in out
    # Processes of a training inherit it.
    assert os.environ["TORCHCAPS_IMPORT"] == "my_plugin"


@pytest.mark.parametrize(("text", "reason"), [("1 / 0", "ZeroDivisionError"), (None, "ModuleNotFoundError")])
def test_module_that_fails_is_one_message(tmp_path: Path, ask, monkeypatch, text: str | None, reason: str) -> None:
    if text:
        (tmp_path / "no_plugin.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TORCHCAPS_IMPORT", "")
    code, out, err = ask("models", "--import", "no_plugin")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "import:" in err
    assert "'no_plugin'" in err
    assert reason in err


def test_installed_package_declares_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "shared_nets.py").write_text(PLUGIN.format(name="net_of_a_package"))
    (tmp_path / "broken_nets.py").write_text("1 / 0")
    info = tmp_path / "nets-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchcaps.plugins]\nnets = shared_nets\nbroken = broken_nets\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TORCHCAPS_IMPORT": ""}
    words = [*COMMAND, "models", "net_of_a_package"]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    # A package that fails does not take the others with it.
    assert "plugin 'broken' is not loaded (ZeroDivisionError" in done.stderr


def test_exit_codes_are_in_the_help(ask) -> None:
    text = ask("--help")[1]
    codes = re.search(r"exit codes: (.*?)\n\n", text, re.DOTALL)
    assert codes is not None
    listed = {int(code) for code in re.findall(r"\d+", codes[1])}
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert listed == {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert {0, 1, 2, 130, 141, 143} <= listed
    assert main(["--version"]) == 0
