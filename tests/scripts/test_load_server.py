"""The load test of the prediction server, for a short time."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torchcaps.serving import listen

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    # It imports the load test of the playground, which is beside it.
    for name in ("load_playground", "load_server"):
        spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def test_fifty_clients(script: ModuleType, tmp_path: Path) -> None:
    file = script.new_weights("cnn_small", tmp_path)
    done = script.soak([str(file), "--threads", "1"], 50, 0.5)
    assert (done["lost"], done["wrong"], done["refused_connections"]) == (0, 0, 0)
    # Each client sends at least one request, however slow the machine is.
    assert done["answered"] >= 50
    assert done["mean_batch"] > 1
    assert done["exit_code"] == 0
    script.record("short", done, tmp_path / "serving.json")
    script.record("again", done, tmp_path / "serving.json")
    stored = json.loads((tmp_path / "serving.json").read_text())
    assert set(stored) == {"short", "again"}
    assert stored["short"]["machine"]["cores"] > 0


def test_server_that_does_not_start_is_not_left_behind(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[Any]] = []

    def start(*args: Any, **options: Any) -> subprocess.Popen[Any]:
        started.append(popen(*args, **options))
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(SystemExit, match="did not start"):
        script.Server(["--no-such-option"])
    # A process without a return code was not waited for: its warning would fail a later test.
    assert started[0].returncode is not None


def test_swapped_prediction_is_noticed(script: ModuleType) -> None:
    body = json.dumps({"predictions": [{"activations": {"a": 0.5, "b": 0.1}}]}).encode()
    assert script._is_expected(body, {"a": 0.5, "b": 0.1004})
    assert not script._is_expected(body, {"a": 0.5, "b": 0.2})


def test_lost_and_refused_requests(script: ModuleType) -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    done = asyncio.run(script.load(port, [(b"", {})], 2, 0.2)).summary()
    assert (done["answered"], done["lost"]) == (0, 0)
    assert done["refused_connections"] > 0


@pytest.mark.parametrize(("clients", "seconds"), [(1000, 1), (1, 1e6), (0, 1)])
def test_invalid_loads(script: ModuleType, clients: int, seconds: float) -> None:
    with pytest.raises(SystemExit, match="200 clients"):
        asyncio.run(script.load(1, [], clients, seconds))
