from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import torchcaps.playground as playground
from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.playground import PlaygroundNetwork
from torchcaps.playground.network import interleave_classes
from torchcaps.serving import listen


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would have been served, instead of serving it."""
    calls: list[dict[str, Any]] = []
    network = PlaygroundNetwork(
        "fresh", "a network", create_model("capsnet_small").eval(), interleave_classes(load_data("digits", "test"))
    )

    def open_network(run: str | None, **options: Any) -> PlaygroundNetwork:
        calls.append({"run": run, **options})
        return network

    def serve(app: Any, listener: Any, *, open_at: str | None) -> None:
        calls.append({"port": listener.getsockname()[1], "open_at": open_at, "network": app.state.catalog.first})

    monkeypatch.setattr(playground, "open_network", open_network)
    monkeypatch.setattr(playground, "serve", serve)
    return calls


def test_address_is_printed_and_opened(ask: Any, served: list[dict[str, Any]]) -> None:
    code, out, err = ask("play", "--port", "0")
    opened, playing = served
    assert (code, err) == (0, "")
    assert (opened["run"], opened["progress"]) == (None, True)
    assert playing["open_at"] == f"http://127.0.0.1:{playing['port']}/"
    assert f"playground at {playing['open_at']}" in out
    assert "fresh: a network" in out


def test_run_without_browser(ask: Any, served: list[dict[str, Any]]) -> None:
    assert ask("play", "runs/mine", "--port", "0", "--no-browser", "--quiet")[0] == 0
    assert served[0]["run"] == "runs/mine"
    assert served[0]["progress"] is False
    assert served[1]["open_at"] is None


@pytest.mark.parametrize(("host", "has_token"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_token_beyond_loopback(ask: Any, served: list[dict[str, Any]], host: str, has_token: bool) -> None:
    code, out, _ = ask("play", "--port", "0", "--host", host)
    assert code == 0
    assert ("?token=" in served[1]["open_at"]) == has_token
    assert ("other machines can reach" in out) == has_token


def test_json(ask: Any, served: list[dict[str, Any]]) -> None:
    code, out, err = ask("play", "--port", "0", "--json", "--no-browser")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "url": f"http://127.0.0.1:{served[1]['port']}/",
        "network": "fresh",
        "about": "a network",
    }


def test_pretrained(ask: Any, served: list[dict[str, Any]]) -> None:
    assert ask("play", "--pretrained", "multimnist", "--port", "0", "--no-browser")[0] == 0
    assert (served[0]["run"], served[0]["pretrained"]) == (None, "multimnist")


def test_unknown_pretrained(ask: Any) -> None:
    code, _, err = ask("play", "--pretrained", "multimnst", "--port", "0")
    assert code == 2
    assert "'multimnst'" in err
    assert "multimnist" in err


def test_run_and_pretrained(ask: Any, tmp_path: Path) -> None:
    code, _, err = ask("play", tmp_path, "--pretrained", "mnist", "--port", "0")
    assert code == 2
    assert err.startswith("run: expected a run or pretrained weights, got both")


def test_unknown_run(ask: Any, tmp_path: Path) -> None:
    code, out, err = ask("play", tmp_path, "--port", "0")
    assert (code, out) == (2, "")
    assert err.startswith("run: expected a run folder")
    assert str(tmp_path) in err


def test_port_in_use(ask: Any, served: list[dict[str, Any]]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, _, err = ask("play", "--port", port)
    assert code == 2
    assert err.startswith(f"--port: expected a free port of 127.0.0.1, got {port} (")
    assert served == []


def test_missing_extra(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    words = "play: expected uvicorn to be installed; get it with: pip install 'torchcaps[play]'\n"
    assert ask("play") == (2, "", words)
