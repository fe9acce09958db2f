from __future__ import annotations

import dataclasses
from typing import Any

import httpx
import pytest

from torchcaps.playground import PlaygroundNetwork, create_app, serve, server
from torchcaps.playground.server import PANELS, STATIC
from torchcaps.serving import listen
from torchcaps.serving.middleware import SECURITY_HEADERS


def error_of(response: httpx.Response) -> str:
    """The message of a failed request, whose id is also in its header."""
    assert set(response.json()) == {"error", "request_id"}
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return response.json()["error"]


def test_static_files(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "torchcaps playground" in page.text
    for file in STATIC.rglob("*.*"):
        response = client.get(f"/{file.relative_to(STATIC).as_posix()}")
        assert response.content == file.read_bytes()
        assert all(response.headers[name] == value for name, value in SECURITY_HEADERS.items())


def test_page_has_no_foreign_links() -> None:
    for file in STATIC.rglob("*.*"):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text, file
        assert "https:" not in text, file
        assert "//cdn" not in text, file


def test_info(client: httpx.Client, network: PlaygroundNetwork) -> None:
    info = client.get("/api/info").json()
    assert info["about"] == network.about
    assert info["classes"] == list("0123456789")
    assert (info["samples"], info["ink"], info["decoder"]) == (200, True, True)
    assert [panel["id"] for panel in info["panels"]] == list(PANELS)
    assert all(panel["unavailable_reason"] is None for panel in info["panels"])


def test_every_panel_has_a_module() -> None:
    assert {file.stem for file in (STATIC / "panels").glob("*.js")} == set(PANELS)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("GET", "/api/nothing"),
        ("GET", "/../../../etc/passwd"),
        ("GET", "/%2e%2e/server.py"),
        ("GET", "/docs"),
    ],
)
def test_unknown_address(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    assert response.status_code == 404
    assert error_of(response).startswith("not found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/draw/predict", "POST"),
        ("PUT", "/api/draw/predict", "POST"),
        ("DELETE", "/", "GET, HEAD"),
        ("DELETE", "/app.js", "GET, HEAD"),
        ("PUT", "/api/info", "GET"),
        ("PATCH", "/api/openapi.json", "GET, HEAD"),
    ],
)
def test_method_not_allowed(client: httpx.Client, method: str, path: str, allowed: str) -> None:
    response = client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert error_of(response) == f"method: expected {allowed.replace(', ', ' or ')}, got {method}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body: Field required"),
        (b"{", "body: expected JSON"),
        (b"[]", "body: Input should be a valid dictionary or object to extract fields from"),
        (b"{}", "source: Field required"),
        (b'{"source": {"sample": 1e400}}', "source.sample.sample: Input should be a valid integer"),
        (b'{"source": {"sample": NaN}}', "source.sample.sample: Input should be a valid integer"),
        (b'{"source": {"sample": true}}', "source.sample.sample: Input should be a valid integer"),
        (b'{"source": {"sample": 1, "x": 1}}', "source.sample.x: Extra inputs are not permitted"),
        (b'{"source": {}}', "source.sample.sample: Field required"),
        (b"\xff\xfe", "body: expected JSON"),
    ],
)
def test_invalid_body(client: httpx.Client, body: bytes, words: str) -> None:
    response = client.post("/api/draw/predict", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert error_of(response) == words


def test_many_errors_are_shortened(client: httpx.Client) -> None:
    response = client.post("/api/pose/decode", json={"label": -1, "pose": ["x"] * 200})
    assert response.status_code == 422
    assert response.json()["error"].endswith("; and 198 more")
    assert len(response.json()["error"]) < 700


def test_large_body_is_refused(client: httpx.Client) -> None:
    def drip() -> Any:
        for _ in range(300):
            yield b"x" * 1024

    for content in (b"x" * 300_000, drip()):
        response = client.post("/api/draw/predict", content=content, headers={"content-type": "application/json"})
        assert (response.status_code, error_of(response)) == (413, "body: expected at most 262144 bytes")


def test_foreign_requests_are_refused(client: httpx.Client) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
        response = client.get("/api/info", headers=headers)
        assert response.status_code == 403
        assert error_of(response)


def test_own_host_name(network: PlaygroundNetwork) -> None:
    import asyncio

    async def go(name: str) -> int:
        transport = httpx.ASGITransport(app=create_app(network, host="playground.lan"))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{name}") as client:
            return (await client.get("/api/info")).status_code

    assert [asyncio.run(go(name)) for name in ("playground.lan", "localhost:1", "other.lan")] == [200, 200, 403]


def test_unavailable_panels(network: PlaygroundNetwork) -> None:
    import asyncio

    assert network.cnn is not None
    app = create_app(dataclasses.replace(network, model=network.cnn))

    async def go() -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            return (await client.get("/api/info")).json()

    unavailable_reason = {panel["id"]: panel["unavailable_reason"] for panel in asyncio.run(go())["panels"]}
    assert unavailable_reason["draw"] is None
    assert unavailable_reason["pose"].endswith("no poses.")
    assert "no routing" in unavailable_reason["routing"]


def test_serve_opens_the_browser(monkeypatch: pytest.MonkeyPatch, network: PlaygroundNetwork) -> None:
    import threading

    opened, sockets = [], []
    done = threading.Event()

    def open_browser(url: str) -> None:
        opened.append(url)
        done.set()

    monkeypatch.setattr(server.webbrowser, "open", open_browser)
    monkeypatch.setattr(server, "run", lambda app, listener: sockets.append(listener))
    with listen("127.0.0.1", 0) as listener:
        serve(create_app(network), listener)
        assert opened == []
        serve(create_app(network), listener, open_at="http://here/")
        assert done.wait(300)
        assert (opened, sockets) == (["http://here/"], [listener] * 2)
