"""uvicorn with limits on slow clients and connections, bounded logs, and a shutdown that answers accepted requests."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

# Loggers that a client can make write.
LOGGERS = ("asyncio", "uvicorn.error", "torchcaps.serving.middleware")


@dataclass(frozen=True)
class ServerLimits:
    """Limits on connections.

    Attributes:
        header_seconds: Time for the headers of a request.
        lines: Line breaks in a request; each header takes one, each chunk of a body two.
        connections: Open connections.
        per_address: Open connections of one address.
        keep_alive: Time until an idle connection is closed.
        log_lines: Lines that each logger writes per minute.
    """

    header_seconds: float = 10.0
    # Parsing a chunk takes as long as parsing a header, also if it has a single byte.
    lines: int = 20_000
    connections: int = 768
    per_address: int = 640
    # Longer than clients keep an idle connection (Chromium 300, Firefox 115, httpx 5): the client then closes it, and
    # no request is sent on a connection that the server is closing.
    keep_alive: int = 330
    log_lines: int = 60


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for headers and limits on open connections."""

    limits = ServerLimits()
    _deadline: asyncio.TimerHandle | None = None
    _lines = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        same = sum(_address(other) == _address(self) for other in self.connections)
        if len(self.connections) > self._max_connections() or same > self.limits.per_address:
            transport.abort()
            return
        self._start_deadline()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._start_deadline()
        if self.cycle is None or self.cycle.response_complete:
            self._lines = 0
        self._lines += data.count(b"\n")
        if self._lines > self.limits.lines:
            self.transport.abort()
            return
        super().data_received(data)
        # A request in progress has complete headers.
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def _max_connections(self) -> int:
        try:
            import resource
        except ImportError:
            # Windows does not limit sockets as files.
            return self.limits.connections
        # Some descriptors are for files and the program itself: without any, asyncio would log an error per attempt.
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return min(self.limits.connections, max(1, descriptors - 128))

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.limits.header_seconds, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


def _address(protocol: asyncio.Protocol) -> str:
    client: tuple[str, int] | None = getattr(protocol, "client", None)
    return client[0] if client else ""


class GracefulServer(uvicorn.Server):
    """A server that, when it stops, first accepts waiting connections and answers their requests.

    Args:
        config: Configuration of uvicorn.

    Example:
        >>> make_server(app).run()  # doctest: +SKIP
    """

    # Seconds to accept waiting connections, and to read the requests that they have sent.
    ACCEPT, READ = 0.1, 0.4
    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and call `on_start`: from then on requests are answered, and signals end the server gracefully.

        Args:
            sockets: Sockets that the server listens on.
        """
        await super().startup(sockets)
        if self.on_start is not None:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, read requests that have arrived, and end.

        Args:
            sockets: Sockets that the server listens on.
        """
        await asyncio.sleep(self.ACCEPT)
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        await asyncio.sleep(self.READ)
        await super().shutdown(sockets)


class LogLimiter(logging.Filter):
    """Let a limited number of records per minute through, and count the others.

    Args:
        lines: Records per minute.
        clock: Time in seconds.
    """

    def __init__(self, lines: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.lines = lines
        self.clock = clock
        self.dropped = 0
        self._start = clock()
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record.

        Args:
            record: The record; the first one after a pause names the number of dropped ones.

        Returns:
            False if the limit of this minute is reached.
        """
        now = self.clock()
        if now - self._start >= 60:
            if self.dropped:
                record.msg = f"({self.dropped} lines dropped) {record.msg}"
            self._start, self._count, self.dropped = now, 0, 0
        self._count += 1
        if self._count > self.lines:
            self.dropped += 1
            return False
        return True


def make_server(app: ASGIApp, limits: ServerLimits | None = None) -> GracefulServer:
    """Make a server for an app.

    Args:
        app: The ASGI application.
        limits: Limits on connections.

    Returns:
        The server; `run(sockets=[...])` serves until Ctrl-C or SIGTERM.

    Example:
        >>> make_server(app).run()  # doctest: +SKIP
    """
    limits = ServerLimits() if limits is None else limits
    protocol: Any = type("ConfiguredProtocol", (LimitedProtocol,), {"limits": limits})

    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        """While the server stops, ask clients to send nothing more on their connections."""

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start" and server.should_exit:
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await app(scope, receive, reply if scope["type"] == "http" else send)

    config = uvicorn.Config(
        closing,
        http=protocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=limits.keep_alive,
    )
    server = GracefulServer(config)
    return server


def run(
    app: ASGIApp,
    listener: socket.socket,
    limits: ServerLimits | None = None,
    on_start: Callable[[], None] | None = None,
) -> None:
    """Serve an app until Ctrl-C or SIGTERM.

    SIGTERM is the usual way to stop a server: the function returns once every accepted request is answered. Ctrl-C
    raises KeyboardInterrupt then.

    Args:
        app: The ASGI application.
        listener: The listening socket.
        limits: Limits on connections.
        on_start: Called when requests are answered.

    Example:
        >>> run(app, listen("127.0.0.1", 8017))  # doctest: +SKIP
    """
    limits = ServerLimits() if limits is None else limits
    loggers = {logging.getLogger(name): LogLimiter(limits.log_lines) for name in LOGGERS}
    for logger, limiter in loggers.items():
        logger.addFilter(limiter)
    server = make_server(app, limits)
    server.on_start = on_start
    in_main_thread = threading.current_thread() is threading.main_thread()
    # uvicorn raises the signal once more at the end, which would kill the process; it may also come before the start.
    stop: Any = lambda *_: setattr(server, "should_exit", True)  # noqa: E731
    before = signal.signal(signal.SIGTERM, stop) if in_main_thread else None
    try:
        server.run(sockets=[listener])
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)
        for logger, limiter in loggers.items():
            logger.removeFilter(limiter)
