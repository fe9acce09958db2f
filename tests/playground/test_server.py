from __future__ import annotations

import dataclasses
import socket
from typing import Any

import httpx
import pytest

from torchcaps.errors import ConfigError
from torchcaps.playground import Network, address_of, create_app, listen, serve, server
from torchcaps.playground.guard import HEADERS
from torchcaps.playground.server import PANELS, STATIC


def test_the_page_and_all_it_needs_come_from_here(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "torchcaps playground" in page.text
    for file in STATIC.rglob("*.*"):
        answer = client.get(f"/{file.relative_to(STATIC).as_posix()}")
        assert answer.content == file.read_bytes()
        assert all(answer.headers[name] == value for name, value in HEADERS.items())


def test_nothing_in_the_page_points_elsewhere() -> None:
    for file in STATIC.rglob("*.*"):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, file
        assert "https:" not in text, file
        assert "//cdn" not in text, file


def test_info_says_what_is_played_with(client: httpx.Client, network: Network) -> None:
    info = client.get("/api/info").json()
    assert info["about"] == network.about
    assert info["classes"] == list("0123456789")
    assert (info["samples"], info["ink"], info["decoder"]) == (200, True, True)
    assert [panel["id"] for panel in info["panels"]] == list(PANELS)
    assert all(panel["lacking"] is None for panel in info["panels"])


def test_every_panel_has_its_page_part() -> None:
    assert {file.stem for file in (STATIC / "panels").glob("*.js")} == set(PANELS)


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nothing", 404, "there is nothing at this address"),
        ("GET", "/api/nothing", 404, "there is nothing at this address"),
        ("GET", "/../../../etc/passwd", 404, "there is nothing at this address"),
        ("GET", "/%2e%2e/server.py", 404, "there is nothing at this address"),
        ("GET", "/docs", 404, "there is nothing at this address"),
        ("GET", "/api/draw/look", 405, "this address is asked in another way"),
        ("DELETE", "/", 405, "this address is asked in another way"),
        ("PUT", "/api/info", 405, "this address is asked in another way"),
    ],
)
def test_a_wrong_address_is_told_in_json(client: httpx.Client, method: str, path: str, status: int, words: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()) == (status, {"error": words})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body: Field required"),
        (b"{", "body: expected JSON"),
        (b"[]", "body: Input should be a valid dictionary or object to extract fields from"),
        (b"{}", "source: Field required"),
        (b'{"source": {"sample": 1e400}}', "source.sample: Input should be a finite number"),
        (b'{"source": {"sample": NaN}}', "source.sample: Input should be a finite number"),
        (b'{"source": {"sample": 1, "x": 1}}', "source.x: Extra inputs are not permitted"),
        (b'{"source": {}}', "source: Value error, expected either a sample or a drawing"),
        (b"\xff\xfe", "body: expected JSON"),
    ],
)
def test_a_wrong_body_is_told_in_json(client: httpx.Client, body: bytes, words: str) -> None:
    answer = client.post("/api/draw/look", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json() == {"error": words}


def test_many_mistakes_are_a_short_answer(client: httpx.Client) -> None:
    answer = client.post("/api/pose/decode", json={"label": -1, "pose": ["x"] * 200})
    assert answer.status_code == 422
    assert answer.json()["error"].endswith("; and 198 more")
    assert len(answer.json()["error"]) < 700


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    def drip() -> Any:
        for _ in range(300):
            yield b"x" * 1024

    for content in (b"x" * 300_000, drip()):
        answer = client.post("/api/draw/look", content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()) == (413, {"error": "body: expected at most 262144 bytes"})


def test_another_site_is_refused_by_the_running_server(client: httpx.Client) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        answer = client.get("/api/info", headers=headers)
        assert answer.status_code == 403
        assert set(answer.json()) == {"error"}


def test_it_answers_to_the_host_that_it_was_started_for(network: Network) -> None:
    import asyncio

    async def go(name: str) -> int:
        transport = httpx.ASGITransport(app=create_app(network, host="playground.lan"))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{name}") as client:
            return (await client.get("/api/info")).status_code

    assert [asyncio.run(go(name)) for name in ("playground.lan", "localhost:1", "other.lan")] == [200, 200, 403]


def test_a_panel_that_does_not_apply_says_so(network: Network) -> None:
    import asyncio

    assert network.cnn is not None
    app = create_app(dataclasses.replace(network, model=network.cnn))

    async def go() -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            return (await client.get("/api/info")).json()

    lacking = {panel["id"]: panel["lacking"] for panel in asyncio.run(go())["panels"]}
    assert lacking["draw"] is None
    assert lacking["pose"].endswith("no pose.")
    assert "no routing" in lacking["routing"]


def test_a_port_that_is_taken_is_told() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"^--port: expected a free port of 127.0.0.1, got {port} \("):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"^--port: expected a number from 0 to 65535, got 70000$"):
        listen("127.0.0.1", 70000)
    with pytest.raises(ConfigError, match=r"^--port: expected a free port of no.such.host.invalid, got 0 \("):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "start"),
    [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("localhost", "http://localhost:")],
)
def test_the_address_is_one_that_can_be_opened(host: str, start: str) -> None:
    with listen(host, 0) as listener:
        assert address_of(listener, host).startswith(start)


def test_an_address_of_version_six_is_in_brackets() -> None:
    class Listener:
        def getsockname(self) -> tuple[str, int]:
            return "::", 8017

    anywhere: Any = Listener()
    assert address_of(anywhere, "::") == "http://[::1]:8017/"


def test_whoever_asks_closes_an_idle_connection_before_the_server_does(network: Network) -> None:
    # Otherwise a request may set out on a connection that is just being closed. Chromium is the most patient.
    assert server.config(create_app(network)).timeout_keep_alive > 300


def test_the_browser_is_opened_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch, network: Network) -> None:
    import threading

    opened, sockets = [], []
    done = threading.Event()

    def open_browser(url: str) -> None:
        opened.append(url)
        done.set()

    def run(self: Any, sockets_: list[socket.socket]) -> None:
        sockets.extend(sockets_)

    monkeypatch.setattr(server.webbrowser, "open", open_browser)
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: run(self, sockets))
    with listen("127.0.0.1", 0) as listener:
        serve(create_app(network), listener)
        assert opened == []
        serve(create_app(network), listener, open_at="http://here/")
        assert done.wait(5)
        assert (opened, sockets) == (["http://here/"], [listener] * 2)
