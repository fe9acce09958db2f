"""The commands of README and docs: every line is run, or named below with the reason why not.

The commands of a page are run in its order, in a folder with what the pages name, and made short: trainings see few
images. Those that read or draw something run in the default set, trainings and servers with `-m slow`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from torchcaps.cli import main

from .conftest import TINY
from .test_pages import PAGES, README, ROOT, blocks, name

# Lines that cannot run here, by how they start.
NOT_RUN = {
    "git clone": "the repository is there",
    "python3 -m venv": "scripts/check_install.py makes environments and installs the wheel into them",
    "pip install": "scripts/check_install.py makes environments and installs the wheel into them",
    "torchcaps data download": "needs the network; tests/data/test_download.py has a mirror of its own",
    "make ": "minutes; the targets are checked to exist",
    "torchrun --nnodes 2": "needs two hosts; tests/train/test_distributed.py has them as network namespaces",
    "torchcaps bench dynamic em": "minutes; --quick is run",
    "export TORCH_DISABLE": "belongs to torchrun",
    "srun": "needs SLURM",
    "mpirun": "needs MPI; tests/train/test_slurm.py runs it",
    "#": "a comment of a job script",
    "torchcaps compare digits --submit slurm --workers 8 --slurm": "needs SLURM; --print is run",
    "torchcaps reproduce NAME": "needs the data of the papers; tests/experiments/test_reproduce.py runs reproductions",
    "photos/cat": "files, no command",
    "python scripts/undo_fixes.py": "changes the sources; half an hour",
    "curl": "tests/serving sends these requests",
    "cd examples/browser": "tests/test_browser_example.py runs a copy of the page",
    "npm install": "tests/test_browser_example.py runs it",
    "python -m http.server": "tests/test_browser_example.py has a server of its own",
    "torchcaps train smallnorb": "needs smallNORB",
    "torchcaps train BasicMotions_TRAIN.ts": "needs a file of the UEA archive; tests/cli/test_arrays.py has one",
    "torchcaps compare BasicMotions_TRAIN.ts": "needs a file of the UEA archive",
    "torchcaps train mine.npz": "needs a file of the reader; tests/cli/test_arrays.py",
    "torchcaps eval runs/NAME --protocol overlap": "needs a run on multimnist; tests/cli/test_eval_protocol.py",
    "torchcaps eval runs/NAME --protocol affine": "needs a run on translated_mnist; tests/cli/test_eval_protocol.py",
    "torchcaps eval runs/NAME --protocol view_angles": "needs a run on coil20; tests/evaluation/test_view_angles.py",
    "torchcaps eval runs/NAME --protocol crowding": "needs a run on crowded_digits; tests/experiments/test_metrics.py",
    "torchcaps eval runs/NAME --protocol binding": "needs a run on its data; tests/evaluation/test_binding.py",
    "torchcaps eval runs/NAME --protocol viewpoints": "needs a run on smallnorb; tests/cli/test_eval_protocol.py",
}
# Commands that train, serve or compile.
SLOW = re.compile(r"torchcaps (train|compare|sweep|export|play|serve|bench)\b|--protocol|--method gradcam|^python ")
# Pages where `runs/NAME` is what the page trains; elsewhere it is a run on digits.
TRAINING_PAGES = ("models", "own_images")
# What follows the words of the docs beside TINY.
SHORT = {
    "train": ["--no-report"],
    "compare": ["--routers=dynamic", "--seeds=1"],
    "sweep": ["--trials=2"],
}
# Recipes of data that are not bundled, and the changes that give them the digits.
WITH_DIGITS = {
    "mnist": ["data.name=digits", "data.options={}", "model.name=capsnet_small", "model.options={}"],
    "multimnist": ["data.options.source=digits"],
}


def lines(page: Path) -> list[str]:
    """Return the lines of the command blocks of a page, without comments and with continued lines joined."""
    text = "\n".join(block for block in blocks(page, "", "bash") if not block.startswith("\n")).replace("\\\n", " ")
    found = [re.split(r"\s+#\s", line)[0].strip() for line in text.splitlines()]
    return [line for line in found if line]


def reason_not_to_run(line: str) -> str | None:
    return next((reason for start, reason in NOT_RUN.items() if line.startswith(start)), None)


def is_slow(page: Path, line: str) -> bool:
    """Whether a line trains, serves or compiles, or needs a run that its page trains."""
    return bool(SLOW.search(line)) or ("runs/NAME" in line and page.stem in TRAINING_PAGES)


COMMANDS = {page: [line for line in lines(page) if reason_not_to_run(line) is None] for page in (README, *PAGES)}
FAST = [page for page, found in COMMANDS.items() if not all(is_slow(page, line) for line in found)]
LONG = [page for page, found in COMMANDS.items() if any(is_slow(page, line) for line in found)]


def test_reasons_are_needed() -> None:
    every = [line for page in (README, *PAGES) for line in lines(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in every)] == []
    targets = set(re.findall(r"^([\w]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {line.split()[1] for line in every if line.startswith("make ")} <= targets


def run_command(line: str, latest: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line of the docs; return the run that `runs/NAME` means after it."""
    line, _, file = line.partition(" > ")
    line = line.replace("runs/NAME", latest).replace("show cifar10", "show digits")
    _, verb, *words = shlex.split(line)
    if verb in SHORT and "--resume" not in words:
        words += [*WITH_DIGITS.get(words[0] if words else "", []), *TINY, *SHORT[verb]]
    if verb == "train" and not {"--resume", "--seeds", "--folds"} & set(words):
        latest = f"runs/trained-{len(list(Path('runs').iterdir()))}"
        words += ["--out", latest]
    capsys.readouterr()
    code = main([verb, *words])
    out, err = capsys.readouterr()
    assert code == 0, f"{line}: {err}"
    if file and not file.startswith("~"):
        Path(file).write_text(out)
    return latest


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", FAST, ids=name)
def test_commands_that_read(page: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in COMMANDS[page]:
        if not is_slow(page, line):
            run_command(line, "runs/NAME", capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", LONG, ids=name)
def test_commands_that_compute(page: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latest = "runs/NAME"
    for line in COMMANDS[page]:
        if line.startswith("python "):
            run_script(line)
        elif re.match(r"torchcaps (play|serve)\b", line):
            serve_once(line)
        elif is_slow(page, line) or line.startswith("torchcaps data make") or ".toml" in line:
            trained = run_command(line, latest, capsys)
            latest = trained if page.stem in TRAINING_PAGES else latest


def run_script(line: str) -> None:
    """Run a script of the repository, for a short time."""
    shorter = re.sub(r"--seconds \d+", "--seconds 5", re.sub(r"--calls \d+", "--calls 20", line))
    command = shlex.split(shorter.partition(" > ")[0].partition(" && ")[0])
    command = [sys.executable, *(str(ROOT / word) if "/" in word else word for word in command[1:])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}: {done.stderr[-2000:]}"


def serve_once(line: str) -> None:
    """Start a server, wait for its address, and stop it."""
    words = [word for word in shlex.split(line)[1:] if word not in ("0.0.0.0", "--host")]
    Path("key.txt").write_text("secret-key-of-a-test-server")
    extra = ["--port", "0", "--json", *(["--no-browser"] if words[0] == "play" else [])]
    command = [sys.executable, "-m", "torchcaps", *words, *extra]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        text = ""
        while '"url"' not in text and (more := server.stdout.readline()):
            text += more
        server.terminate()
        _, error = server.communicate(timeout=900)
    assert '"url"' in text, f"{line}: {error}"
    assert server.returncode in (0, -15), f"{line}: {error}"
    assert "Traceback" not in error
