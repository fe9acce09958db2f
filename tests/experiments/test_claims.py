from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raising import raises_about
from torchcaps.errors import WriteError
from torchcaps.experiments import Claims
from torchcaps.experiments import claims as claims_module
from torchcaps.experiments.claims import Status

WORKERS, ITEMS = 4, [f"item-{number:02d}" for number in range(40)]


def foreign(file: Path, **changes: object) -> None:
    """Write a claim of a process of another host."""
    record = {
        "status": "held",
        "error": None,
        "host": "other",
        "pid": 7,
        "started": "1",
        "scope": "elsewhere",
        "beat": 0,
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**record, **changes}))


def test_item_is_held_by_one(tmp_path):
    one, other = Claims(tmp_path), Claims(tmp_path)
    claim = one.take("a")
    assert claim is not None
    with claim:
        assert other.take("a") is None
        assert other.state("a").status == "held"
        assert other.state("a").pid == os.getpid()
        assert other.take("b") is not None
    # The block ended without a result.
    assert other.state("a").status == "stopped"


def test_done_items_are_not_claimed_again(tmp_path):
    claims = Claims(tmp_path)
    expected: tuple[tuple[str, Status], ...] = (("a", "finished"), ("b", "failed"))
    for name, status in expected:
        claim = claims.take(name)
        assert claim is not None
        with claim:
            claim.finish() if name == "a" else claim.fail("no memory")
        assert (claims.state(name).status, claims.state(name).error) == (status, "no memory" if name == "b" else None)
        assert claims.take(name) is None
        again = claims.take(name, again=[status])
        assert again is not None
        assert again.path.name == f"{name}.1"


def test_error_in_block_frees_the_item(tmp_path):
    claims = Claims(tmp_path)
    claim = claims.take("a")
    assert claim is not None
    with pytest.raises(RuntimeError), claim:
        raise RuntimeError("stop")
    assert claims.take("a") is not None


def test_claim_is_taken_over_once_its_heartbeat_stops(tmp_path, monkeypatch):
    seconds = 0.0
    monkeypatch.setattr(claims_module, "time", SimpleNamespace(monotonic=lambda: seconds))
    claims = Claims(tmp_path, timeout=20)
    foreign(tmp_path / "a.0")
    assert claims.state("a").status == "held"
    seconds = 15.0
    # A heartbeat starts the time again.
    foreign(tmp_path / "a.0", beat=1)
    assert claims.state("a").status == "held"
    seconds = 35.0
    assert claims.take("a") is None
    seconds = 36.0
    assert claims.take("a", may_take_over=lambda: False) is None
    claim = claims.take("a", may_take_over=lambda: True)
    assert claim is not None
    assert claim.path.name == "a.1"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"status": "other"}', b'{"pid": "x"}', b"\xff"])
def test_unreadable_claim_is_held_until_its_time_is_over(tmp_path, content):
    claims = Claims(tmp_path, timeout=0.05)
    (tmp_path / "a.0").write_bytes(content)
    assert claims.take("a") is None
    time.sleep(0.1)
    assert claims.take("a") is not None


def test_ended_process_of_this_host_is_noticed_at_once(tmp_path):
    # It is not waited for, and stays in the table of processes.
    child = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    scope, started = claims_module._scope(), claims_module._process_start(child.pid)
    if scope is None:
        pytest.skip("process numbers are checked on Linux only")
    foreign(tmp_path / "a.0", pid=child.pid, scope=scope, started=started)
    foreign(tmp_path / "b.0", pid=os.getpid(), scope=scope, started="1")
    claims = Claims(tmp_path)
    assert claims.state("a").status == "held"
    # Another process has the number of one that is gone.
    assert claims.state("b").status == "stopped"
    child.kill()
    while claims_module._process_start(child.pid) is not None:
        time.sleep(0.01)
    assert claims.state("a").status == "stopped"
    child.communicate()


def test_heartbeat_is_written_and_stops(tmp_path):
    claims = Claims(tmp_path, interval=0.01)
    claim = claims.take("a")
    assert claim is not None
    with claim:
        end = time.monotonic() + 900
        while json.loads(claim.path.read_text())["beat"] < 2 and time.monotonic() < end:
            time.sleep(0.01)
        claim.finish()
    last = claim.path.read_text()
    assert json.loads(last)["beat"] >= 2
    assert json.loads(last)["status"] == "finished"
    time.sleep(0.05)
    assert claim.path.read_text() == last


def test_process_that_lost_its_claim_is_interrupted(tmp_path):
    claims = Claims(tmp_path, interval=0.01)
    claim = claims.take("a")
    assert claim is not None
    foreign(tmp_path / "a.1")
    with pytest.raises(KeyboardInterrupt), claim:
        time.sleep(900)
    assert claim.lost
    # What the other process wrote is left alone.
    assert claims.state("a").host == "other"


def work_through(folder: Path, hosts: bool) -> None:
    """Work on all items until each is done; an item takes some milliseconds."""
    if hosts:
        # As on hosts of their own: process numbers say nothing, only heartbeats do.
        claims_module._scope = lambda: f"host {os.getpid()}"
    # A process of a busy machine may get no time for seconds.
    claims = Claims(folder / "claims", interval=0.02, timeout=60)
    while any(claims.state(name).status != "finished" for name in ITEMS):
        for name in ITEMS:
            claim = claims.take(name)
            if claim is None:
                continue
            with claim:
                begin, done = (folder / kind / f"{name}-{os.getpid()}" for kind in ("begun", "done"))
                begin.touch()
                time.sleep(0.02)
                # As a run: what was finished by a process that was killed afterwards is not done again.
                if not list(done.parent.glob(f"{name}-*")):
                    done.touch()
                claim.finish()
        time.sleep(0.02)
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")
@pytest.mark.parametrize(
    "hosts", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one host", "several hosts"]
)
def test_exactly_once(tmp_path, hosts):
    for kind in ("begun", "done"):
        (tmp_path / kind).mkdir()
    workers = []
    for _ in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            try:
                work_through(tmp_path, hosts)
            finally:
                os._exit(1)
        workers.append(pid)
    killed = 0
    for pid, share in zip(workers[:2], (0.2, 0.5), strict=True):
        while len(list((tmp_path / "done").iterdir())) < share * len(ITEMS):
            time.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert killed == 2
    for pid in workers[2:]:
        assert os.waitpid(pid, 0)[1] == 0
    done = sorted(file.name.rpartition("-")[0] for file in (tmp_path / "done").iterdir())
    begun = [file.name.rpartition("-")[0] for file in (tmp_path / "begun").iterdir()]
    assert done == ITEMS
    # Only what a killed process held was begun a second time.
    assert len(ITEMS) <= len(begun) <= len(ITEMS) + killed


def test_folder_that_cannot_hold_claims(tmp_path):
    (tmp_path / "claims").write_text("a file")
    claims = Claims(tmp_path / "claims")
    assert claims.state("a").status == "free"
    with raises_about(WriteError, "claims"):
        claims.take("a")


def test_claim_that_was_taken_over_is_not_marked(tmp_path):
    claims = Claims(tmp_path, interval=60)
    claim = claims.take("a")
    assert claim is not None
    with claim:
        # No heartbeat has noticed it yet.
        foreign(tmp_path / "a.1")
        assert claim.lost
        claim.finish()
    assert json.loads((tmp_path / "a.0").read_text())["status"] == "held"
