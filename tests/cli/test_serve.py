from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import torchcaps.serving as serving
from refusing import refused
from torchcaps.serving import listen

KEY = "a-key-of-this-test-0123456789"


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What would have been served, instead of serving it."""
    calls: list[dict[str, Any]] = []
    create = serving.create_server_app

    def create_server_app(classifier: Any, **options: Any) -> Any:
        calls.append({"classifier": classifier, **options})
        return create(classifier, **options)

    monkeypatch.setattr(serving, "create_server_app", create_server_app)
    monkeypatch.setattr(serving, "run", lambda app, listener, on_start: on_start())
    monkeypatch.delenv("TORCHCAPS_API_KEY", raising=False)
    threads = torch.get_num_threads()
    yield calls
    torch.set_num_threads(threads)


def test_run_with_calibration_and_thresholds(run: Path, ask: Any, apps: list[dict[str, Any]]) -> None:
    code, out, err = ask("serve", run, "--port", "0")
    assert (code, err) == (0, "")
    (app,) = apps
    assert app["classifier"].model.temperature is not None
    assert app["classifier"].rejection is not None
    assert len(app["classifier"].class_names) == 3
    assert app["api_key"] is None
    assert "POST http://127.0.0.1:" in out


def test_weights_file_alone(run: Path, ask_json: Any, apps: list[dict[str, Any]]) -> None:
    document = ask_json("serve", run / "weights.safetensors", "--port", "0")
    assert document["url"].startswith("http://127.0.0.1:")
    assert document["key"] is False
    assert list(apps[0]["classifier"].class_names) == document["classes"]
    assert apps[0]["classifier"].model.temperature is not None


def test_limits(ask: Any, apps: list[dict[str, Any]]) -> None:
    words = ("--max-batch", "4", "--max-wait", "20", "--max-images", "2000", "--max-body", "0.5", "--max-pixels", "99")
    assert ask("serve", "--pretrained", "mnist_cnn", "--port", "0", *words, "--threads", "1")[0] == 0
    limits = apps[0]["limits"]
    assert (limits.max_batch, limits.max_wait, limits.max_images) == (4, 0.02, 2000)
    assert (limits.max_body, limits.max_pixels, limits.max_queue) == (512 * 1024, 99, 2000)
    assert torch.get_num_threads() == 1


def test_key_of_a_file_or_of_the_environment(
    ask: Any, apps: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.txt"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    words = ("serve", "--pretrained", "mnist_cnn", "--port", "0")
    code, out, err = ask(*words, "--api-key-file", file)
    assert (code, err) == (0, "")
    assert KEY not in out
    monkeypatch.setenv("TORCHCAPS_API_KEY", KEY)
    assert ask(*words)[0] == 0
    assert [app["api_key"] for app in apps] == [KEY, KEY]
    file.chmod(0o644)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert "chmod 600" in ask(*words, "--api-key-file", file)[2]


@pytest.mark.parametrize(
    ("host", "keyed", "warned"), [("0.0.0.0", False, True), ("0.0.0.0", True, False), ("localhost", False, False)]
)
def test_warning_beyond_loopback_without_a_key(
    ask: Any, apps: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, host: str, keyed: bool, warned: bool
) -> None:
    if keyed:
        monkeypatch.setenv("TORCHCAPS_API_KEY", KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = ask("serve", "--pretrained", "mnist_cnn", "--port", "0", "--host", host)
    assert code == 0
    assert ("--api-key-file" in err) == warned


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ("serve", "neither")),
        (("runs/x", "--pretrained", "mnist"), ("serve", "both")),
        (("no/such/run",), ("no/such/run",)),
        (("no.onnx",), ("no.onnx",)),
        (("no.safetensors",), ("no.safetensors",)),
        (("--pretrained", "mnits"), ("mnits",)),
        (("--pretrained", "mnist", "--port", "70000"), ("--port", "70000")),
        (("--pretrained", "mnist", "--max-batch", "0"), ("--max-batch", "0")),
        (("--pretrained", "mnist", "--max-wait", "-1"), ("--max-wait", "-1")),
        (("--pretrained", "mnist", "--max-images", "0"), ("--max-images", "0")),
        (("--pretrained", "mnist", "--max-body", "0"), ("--max-body", "0")),
        (("--pretrained", "mnist", "--max-body", "nan"), ("--max-body", "nan")),
        (("--pretrained", "mnist", "--threads", "0"), ("--threads", "0")),
        (("--pretrained", "mnist", "--api-key-file", "no/such/key"), ("--api-key-file", "no/such/key")),
    ],
)
def test_mistakes(ask: Any, apps: list[dict[str, Any]], words: tuple[str, ...], names: tuple[str, ...]) -> None:
    refused(ask, "serve", *words, about=names)
    assert apps == []


@pytest.mark.parametrize("key", ["", "short", "with spaces in the middle of it", "\u00fcmlaut-in-the-key-0123"])
def test_weak_keys(
    ask: Any, apps: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    file = tmp_path / "key.txt"
    file.write_text(key)
    file.chmod(0o600)
    refused(ask, "serve", "--pretrained", "mnist_cnn", "--api-key-file", file, about=["--api-key-file", len(key)])
    monkeypatch.setenv("TORCHCAPS_API_KEY", key)
    refused(ask, "serve", "--pretrained", "mnist_cnn", about=["TORCHCAPS_API_KEY", len(key)])


def test_port_in_use(ask: Any, apps: list[dict[str, Any]]) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        refused(ask, "serve", "--pretrained", "mnist_cnn", "--port", str(port), about=["--port", port])


def test_sigterm_answers_requests_in_flight_and_ends_with_0() -> None:
    command = [sys.executable, "-m", "torchcaps", "serve", "--pretrained", "mnist_cnn", "--port", "0", "--json"]
    # Images wait for others for a second, so that all requests are in flight.
    command += ["--max-wait", "1000", "--max-batch", "64", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
            assert process.poll() is None
        url = json.loads(text)["url"]
        body = json.dumps({"images": torch.zeros(1, 1, 28, 28).tolist()}).encode()
        lines = ["POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        address = ("127.0.0.1", httpx.URL(url).port or 0)
        sockets = [socket.create_connection(address, timeout=60) for _ in range(20)]
        for connection in sockets:
            connection.sendall(head.encode() + body)
        process.send_signal(signal.SIGTERM)
        answers = []
        for connection in sockets:
            answer = b""
            while part := connection.recv(65536):
                answer += part
            connection.close()
            answers.append(answer)
        killer = threading.Timer(60, process.kill)
        killer.start()
        code, err = process.wait(), process.stderr.read()
        killer.cancel()
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert (code, err) == (0, "")
