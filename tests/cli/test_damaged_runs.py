"""Every file of a run folder by somebody else x every kind of damage x every command that opens a run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchcaps.errors import TorchcapsError
from torchcaps.experiments.compare_metrics import measure_run
from torchcaps.playground import create_app, open_network
from torchcaps.train import Run

SECRET = b"precious\n"
RECORD_KEYS = ("status", "image_shape", "num_classes", "num_labels", "class_names", "results", "resumed", "seconds")
WRONG = ([], {}, "abc", True, None, -1, 10**30, 1e308, [[[]]], ["x", 1, None], [1, 2**40, 2**40])
# The last checkpoint is one of the files; its name depends on the number of steps.
FILES = (
    "recipe.toml",
    "run.json",
    "metrics.csv",
    "diagnostics.csv",
    "diagnostics.json",
    "evaluation.json",
    "predictions.safetensors",
    "weights.safetensors",
    "checkpoints/last",
    "report.html",
    "figures/curves.png",
    "comparison.json",
)


def write(content: bytes) -> Callable[[Path, Path], None]:
    def damage(file: Path, victim: Path) -> None:
        file.write_bytes(content)

    return damage


def truncate(file: Path, victim: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def link(file: Path, victim: Path) -> None:
    file.unlink()
    file.symlink_to(victim)


def pipe(file: Path, victim: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def device(file: Path, victim: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def folder(file: Path, victim: Path) -> None:
    file.unlink()
    (file / "inside").mkdir(parents=True)


def huge(file: Path, victim: Path) -> None:
    # Sparse: takes no space on disk.
    with file.open("r+b") as content:
        content.truncate(2**40)


HEADERS = {
    "lying offsets": {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
    "lying shape": {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}},
    "unknown type": {"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}},
}

DAMAGE: dict[str, Callable[[Path, Path], None]] = {
    "empty": write(b""),
    "list": write(b"[]"),
    "object": write(b"{}"),
    "deep": write(b"[" * 100_000),
    "deep table": write(b"a = " + b"[" * 100_000),
    "dotted": write(b"[" + b".".join([b"a"] * 2_000) + b"]"),
    "digits": write(b'{"status": ' + b"9" * 6_000 + b"}"),
    "digits table": write(b"seed = " + b"9" * 6_000),
    "not a number": write(b"epoch,step,value\nNaN,nan,-inf\nabc,,1e999\n"),
    "ragged table": write(b"a,b\n1\n1,2,3\n\0,\n"),
    "not UTF-8": write(b"\xff\xfe\0\xd8" * 9),
    "escapes": write(b'name = "\x1b[2J"'),
    **{
        name: write(struct.pack("<Q", len(text)) + text + bytes(4))
        for name, header in HEADERS.items()
        for text in [json.dumps(header).encode()]
    },
    "header of 2^63 bytes": write(struct.pack("<Q", 2**63) + b"{}"),
    "truncated": truncate,
    "link": link,
    "pipe": pipe,
    "device": device,
    "folder": folder,
    "huge": huge,
}

# One of each way to fail; the others are for `pytest -m slow`.
FAST_KEYS = ("image_shape", "class_names", "results")
FAST = ("empty", "not UTF-8", "link", "pipe")


@pytest.fixture(scope="session")
def measured(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the files that each command leaves in it."""
    copy = shutil.copytree(run, tmp_path_factory.mktemp("measured") / "run")
    measure_run(Run.open(copy), {}, memory=False)
    return copy


@pytest.fixture
def copy(measured: Path, tmp_path: Path) -> Path:
    return shutil.copytree(measured, tmp_path / "copy")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_bytes(SECRET)
    return tmp_path / "victim"


@contextlib.contextmanager
def time_limit(seconds: int = 60) -> Iterator[None]:
    """A command that waits for a pipe never ends."""

    def stop(*_: object) -> None:
        pytest.fail(f"more than {seconds} seconds")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


# Commands that read only some of the files; the others are run for every file.
READ_BY = {
    "recipe.toml": ["curves", "train"],
    "run.json": ["curves"],
    "metrics.csv": ["curves"],
    "figures/curves.png": ["curves"],
    "diagnostics.csv": ["routing_curves"],
}


def check_commands(ask: Callable[..., tuple[int, str, str]], run: Path, image: Path, name: str) -> list[str]:
    """Every command succeeds, perhaps with notes, or refuses in one sentence; return the refusals."""
    commands: list[tuple[object, ...]] = [
        ("eval", run),
        ("show", run, "--figure", "confusion"),
        ("predict", run, image),
        ("train", "--resume", run, "--no-report"),
    ]
    for reader in READ_BY.get(name, []):
        again = ("train", run / name, "trainer.epochs=1", "--no-report", "--out", run.parent / "again")
        commands.append(again if reader == "train" else ("show", run, "--figure", reader))
    refusals = []
    for words in commands:
        with time_limit():
            code, out, err = ask(*words)
        lines = [line for line in err.splitlines() if not line.startswith("note: ")]
        assert code in (0, 2), f"{words[0]}: {err}"
        assert "unexpected" not in err
        assert "Traceback" not in err
        if code == 2:
            assert out == ""
            assert lines
            refusals.append(lines[0])
        assert "\x1b" not in out + err
    for use in (_play, _compare):
        with time_limit(), contextlib.suppress(TorchcapsError):
            use(run)
    return refusals


def _play(run: Path) -> None:
    network = open_network(run)
    network.warm_up()
    create_app(network)


def _compare(run: Path) -> None:
    measure_run(Run.open(run), {}, memory=False)


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "kind", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in DAMAGE]
)
def test_damaged_file(copy: Path, pictures: Path, victim: Path, ask, name: str, kind: str) -> None:
    file = next((copy / "checkpoints").iterdir()) if name == "checkpoints/last" else copy / name
    DAMAGE[kind](file, victim)
    before = {path for path in copy.parent.rglob("*") if copy not in path.parents}
    check_commands(ask, copy, next((pictures / "eel").iterdir()), name)
    again = copy.parent / "again"
    assert {
        path for path in copy.parent.rglob("*") if copy not in path.parents and again not in (path, *path.parents)
    } == before
    assert victim.read_bytes() == SECRET


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    "key", [key if key in FAST_KEYS else pytest.param(key, marks=pytest.mark.slow) for key in RECORD_KEYS]
)
def test_wrong_values_in_the_record(copy: Path, pictures: Path, ask, key: str) -> None:
    record = json.loads((copy / "run.json").read_text())
    image = next((pictures / "eel").iterdir())
    for value in WRONG:
        shutil.rmtree(copy / "checkpoints", ignore_errors=True)
        (copy / "checkpoints").mkdir()
        (copy / "run.json").write_text(json.dumps({**record, key: value}))
        check_commands(ask, copy, image, "run.json")
    (copy / "run.json").write_text(json.dumps({name: value for name, value in record.items() if name != key}))
    check_commands(ask, copy, image, "run.json")
