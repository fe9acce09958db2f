"""Slow clients, many connections, logs and shutdown, with a real server on the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from torchcaps.serving import GracefulServer, RequestLimits, SecurityMiddleware, ServerLimits, listen, make_server, run
from torchcaps.serving.server import LogLimiter


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def slow(request: Request) -> PlainTextResponse:
    await asyncio.sleep(0.5)
    return PlainTextResponse("slow")


async def held(request: Request) -> PlainTextResponse:
    """Answer once the test allows it."""
    while not RELEASED.is_set():
        await asyncio.sleep(0.01)
    return PlainTextResponse("held")


RELEASED = threading.Event()


@contextlib.contextmanager
def serving(limits: ServerLimits | None = None, **request_limits: float) -> Iterator[tuple[GracefulServer, int]]:
    """A running server and its port."""
    routes = [Route("/", echo, methods=["GET", "POST"]), Route("/slow", slow), Route("/held", held)]
    app = SecurityMiddleware(Router(routes), limits=RequestLimits(**request_limits))  # pyright: ignore[reportArgumentType]
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        server = make_server(app, limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield server, port
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive()


def connect(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(data)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    connection.close()
    return data


def get(port: int, path: str = "/") -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\nHost: local"])
def test_incomplete_headers_time_out(data: bytes) -> None:
    with serving(ServerLimits(header_seconds=0.3)) as (_, port):
        slow_clients = [connect(port, data) for _ in range(20)]
        assert get(port).status_code == 200
        assert [read_all(client) for client in slow_clients] == [b""] * 20


def test_incomplete_headers_time_out_on_a_used_connection() -> None:
    with serving(ServerLimits(header_seconds=0.5)) as (_, port):
        client = connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HTTP/1.1\r\nHo")
        assert b"HTTP" not in read_all(client)


def test_slow_body_times_out() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with serving(body_seconds=0.3) as (_, port):
        slow_clients = [connect(port, head) for _ in range(20)]
        assert get(port).status_code == 200
        responses = [read_all(client) for client in slow_clients]
        assert all(response.startswith(b"HTTP/1.1 408") for response in responses)
        assert all(b"within 0.3 seconds" in response for response in responses)


def test_many_tiny_chunks_are_cut_off() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(ServerLimits(lines=1000)) as (_, port):
        assert b"400 bytes" in read_all(
            connect(
                port, head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"1\r\nx\r\n" * 400 + b"0\r\n\r\n"
            )
        )
        connection = connect(port, head)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"1\r\nx\r\n" * 100)
        assert read_all(connection) == b""
        assert get(port).status_code == 200


def test_response_may_take_longer_than_the_body() -> None:
    with serving(body_seconds=0.1) as (_, port):
        assert get(port, "/slow").text == "slow"


@pytest.mark.parametrize("limits", [ServerLimits(connections=5), ServerLimits(per_address=5)])
def test_connection_limit(limits: ServerLimits) -> None:
    with serving(limits) as (server, port):
        held = [connect(port) for _ in range(5)]
        while len(server.server_state.connections) < 5:
            time.sleep(0.01)
        # With a whole request: without the limit it would be answered.
        with contextlib.suppress(ConnectionError):
            assert read_all(connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")) == b""
        for client in held:
            client.close()
        while server.server_state.connections:
            time.sleep(0.01)
        assert get(port).status_code == 200


def test_requests_of_one_address_are_limited() -> None:
    RELEASED.clear()
    with serving(waiting_per_address=2) as (_, port):
        request = b"GET /held HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        clients = [connect(port, request) for _ in range(6)]
        # Two are in progress until the other four are refused.
        end = time.monotonic() + 60
        while len(select.select(clients, [], [], 60)[0]) < 4 and time.monotonic() < end:
            time.sleep(0.01)
        RELEASED.set()
        responses = [read_all(client) for client in clients]
        assert sum(response.startswith(b"HTTP/1.1 200") for response in responses) == 2
        assert sum(response.startswith(b"HTTP/1.1 503") for response in responses) == 4


def test_shutdown_answers_waiting_connections() -> None:
    request = b"GET /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with serving() as (server, port):
        server.should_exit = True
        clients = [connect(port, request) for _ in range(40)]
        responses = [read_all(client) for client in clients]
    assert all(response.startswith(b"HTTP/1.1 200") for response in responses)


def test_shutdown_reads_the_request_of_an_open_connection() -> None:
    def wait_for(state: Callable[[], object]) -> None:
        until = time.monotonic() + 60
        while not state() and time.monotonic() < until:
            time.sleep(0.001)
        assert state()

    with serving() as (server, port):
        server.READ = 3.0
        client = connect(port)
        wait_for(lambda: server.server_state.connections)
        server.should_exit = True
        # The request comes after the last connection was accepted.
        wait_for(lambda: not any(each.is_serving() for each in server.servers))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 200")


def test_log_lines_are_limited() -> None:
    now = [0.0]
    limiter = LogLimiter(3, clock=lambda: now[0])
    records = [logging.LogRecord("asyncio", logging.ERROR, "", 0, "accept failed", (), None) for _ in range(12)]
    assert [limiter.filter(record) for record in records[:10]] == [True] * 3 + [False] * 7
    now[0] = 61
    assert limiter.filter(records[10])
    assert records[10].getMessage() == "(7 lines dropped) accept failed"


def test_run_limits_the_logs_and_restores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    filters: list[int] = []
    logger = logging.getLogger("asyncio")
    before = list(logger.filters)
    monkeypatch.setattr(GracefulServer, "run", lambda self, sockets: filters.append(len(logger.filters)))
    with listen("127.0.0.1", 0) as listener:
        run(Router([]), listener)
    assert filters == [len(before) + 1]
    assert logger.filters == before


def test_sigterm_before_the_start_is_not_lost() -> None:
    called: list[str] = []
    handler = signal.getsignal(signal.SIGTERM)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        called.append(message["type"])
        if message["type"] == "lifespan.startup":
            # As if it came while the libraries were loaded.
            signal.raise_signal(signal.SIGTERM)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.startup":
            await app(scope, receive, send)

    with listen("127.0.0.1", 0) as listener:
        # It returns: otherwise the test would not end.
        run(app, listener, on_start=lambda: called.append("started"))
    assert called == ["lifespan.startup", "started", "lifespan.shutdown"]
    assert signal.getsignal(signal.SIGTERM) is handler


def test_keep_alive_is_longer_than_that_of_clients() -> None:
    # Chromium keeps an idle connection for 300 seconds.
    assert make_server(Router([])).config.timeout_keep_alive > 300
