"""ASGI middleware of the web servers: origin checks, limits, request ids, security headers, errors as JSON."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")

SECURITY_HEADERS = {
    # No foreign resources, no inline code, no frames.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

# The rest of a refused body is not read: its connection cannot be used again.
EXTRA_HEADERS = {
    408: {"connection": "close"},
    413: {"connection": "close"},
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}
COOKIE = "torchcaps_token"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RequestLimits:
    """Limits on requests.

    Attributes:
        body: Largest body in bytes.
        body_seconds: Time for a body.
        bodies: Bytes of all bodies in progress together.
        rate: Requests per second from one address.
        burst: Requests that one address may send at once.
        waiting: Requests in progress.
        waiting_per_address: Requests of one address in progress.
    """

    body: int = 256 * 1024
    body_seconds: float = 10.0
    bodies: int = 256 * 1024 * 1024
    # Far above the needs of fifty users; stops a runaway loop.
    rate: float = 1000.0
    burst: float = 2000.0
    waiting: int = 256
    waiting_per_address: int = 192


class RequestRefusedError(HTTPException):
    """A refused request, with the status and the reason.

    It is an HTTPException because frameworks pass no other exception through while they read a body.
    """


class RateLimiter:
    """A token bucket for each address; the least recently used addresses are dropped.

    Args:
        rate: Tokens per second.
        burst: Size of a bucket.
        clock: Time in seconds.

    Example:
        >>> limiter = RateLimiter(rate=1, burst=2)
        >>> [limiter.take("127.0.0.1") for _ in range(3)]
        [True, True, False]
    """

    MAX_ADDRESSES = 1024

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self.clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one token from the bucket of an address.

        Args:
            address: The address.

        Returns:
            False if the bucket is empty.
        """
        now = self.clock()
        level, then = self._levels.pop(address, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        self._levels[address] = (level - 1 if level >= 1 else level, now)
        while len(self._levels) > self.MAX_ADDRESSES:
            self._levels.popitem(last=False)
        return level >= 1


class SecurityMiddleware:
    """Refuse foreign, oversized and too many requests, and add security headers and a request id to every response.

    Against DNS rebinding, the Host header must name the server. Against requests by other sites, the Origin header must
    be the server's own, and a browser's Sec-Fetch-Site header must be `same-origin` or `none`; the only exception is a
    link from another site to the page itself.

    Args:
        app: The ASGI application.
        hosts: Names of the server; `*` is every name, for a server whose requests need a key.
        limits: Limits on requests.
        token: Secret that every request must carry: in the query of the page's address, which sets a cookie, in that
            cookie, or as `Authorization: Bearer`.
        content_types: Types of bodies that are accepted; `image/*` is every type of image.

    Example:
        >>> app.add_middleware(SecurityMiddleware)  # doctest: +SKIP
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] = LOOPBACK,
        limits: RequestLimits | None = None,
        token: str | None = None,
        content_types: Iterable[str] = ("application/json",),
    ) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self.limits = RequestLimits() if limits is None else limits
        self.rate_limiter = RateLimiter(self.limits.rate, self.limits.burst)
        self.token = token
        self.content_types = tuple(content_types)
        self.waiting = 0
        self.body_bytes = 0
        self.waiting_by_address: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # Never taken from the client: ids in the log must be trustworthy.
        request_id = secrets.token_hex(6)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False
        client = scope.get("client")
        address = client[0] if client else ""

        async def reply(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers["x-request-id"] = request_id
                if self.token is not None and self._has_query_token(scope):
                    headers.append("set-cookie", f"{COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict")
                headers.setdefault("cache-control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        self.waiting += 1
        self.waiting_by_address[address] += 1
        body = _Body(self, receive)
        try:
            self._check(scope, address)
            await self.app(scope, body.receive, reply)
        except RequestRefusedError as refused:
            if not started:
                headers = EXTRA_HEADERS.get(refused.status_code)
                await error_response(refused.detail, refused.status_code, request_id, headers)(scope, receive, reply)
        except Exception:
            logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            if not started:
                await error_response("internal error; see the server's log", 500, request_id)(scope, receive, reply)
        finally:
            self.waiting -= 1
            self.body_bytes -= body.size
            self.waiting_by_address[address] -= 1
            if not self.waiting_by_address[address]:
                del self.waiting_by_address[address]

    def _check(self, scope: Scope, address: str) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own_name(host_name(host)):
            raise RequestRefusedError(403, "host: expected the address that the server printed, got another name")
        if _is_foreign(scope, headers, host):
            raise RequestRefusedError(403, "origin: expected the server's own page, got another site")
        if self.token is not None and not self._has_token(scope, headers, self.token):
            raise RequestRefusedError(
                401, "token: expected the address that the server printed, but its token is missing or wrong"
            )
        if not scope["path"].isprintable() or not scope.get("query_string", b"").isascii():
            raise RequestRefusedError(400, "path: expected printable characters, got others")
        limits = self.limits
        if self.waiting > limits.waiting or self.waiting_by_address[address] > limits.waiting_per_address:
            raise RequestRefusedError(503, "too many requests in progress; try again in a moment")
        if not self.rate_limiter.take(address):
            raise RequestRefusedError(429, "too many requests per second; try again in a moment")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body:
            raise RequestRefusedError(413, f"body: expected at most {self.limits.body} bytes")
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        main, slash, _ = content_type.partition("/")
        known = content_type in self.content_types or (slash and f"{main}/*" in self.content_types)
        if scope["method"] == "POST" and not known:
            raise RequestRefusedError(415, f"content-type: expected {' or '.join(self.content_types)}")

    def _is_own_name(self, name: str) -> bool:
        if name in self.hosts or "*" in self.hosts:
            return True
        # A server on all interfaces accepts every address of the machine; rebinding needs a name.
        return any(host in WILDCARDS for host in self.hosts) and _is_ip_address(name)

    def _has_query_token(self, scope: Scope) -> bool:
        given = QueryParams(scope.get("query_string", b"")).get("token")
        return given is not None and secrets.compare_digest(given.encode(), str(self.token).encode())

    def _has_token(self, scope: Scope, headers: Headers, token: str) -> bool:
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        given = [secrets.compare_digest(text.encode(), token.encode()) for text in (cookie, bearer)]
        return any(given) or self._has_query_token(scope)


class _Body:
    """The body of a request: its bytes and its time are limited, also where no length was announced."""

    def __init__(self, server: SecurityMiddleware, receive: Receive) -> None:
        self.server = server
        self.limits = server.limits
        self.size = 0
        self._receive = receive
        self._complete = False
        self._deadline = time.monotonic() + self.limits.body_seconds

    async def receive(self) -> Message:
        # After the body only a disconnect is to come, which may take as long as the response.
        if self._complete:
            return await self._receive()
        try:
            with anyio.fail_after(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise RequestRefusedError(408, f"body: expected within {self.limits.body_seconds:g} seconds") from None
        count = len(message.get("body", b""))
        self.size += count
        self.server.body_bytes += count
        self._complete = not message.get("more_body", False)
        if self.size > self.limits.body:
            raise RequestRefusedError(413, f"body: expected at most {self.limits.body} bytes")
        if self.server.body_bytes > self.limits.bodies:
            raise RequestRefusedError(503, "too many bytes in progress; try again in a moment")
        return message


def error_response(message: str, status: int, request_id: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """The response to a failed request: `{"error": message, "request_id": id}`.

    Args:
        message: One sentence.
        status: HTTP status.
        request_id: Id of the request, also in its `x-request-id` header and in the log.
        headers: Further headers.

    Returns:
        The response.
    """
    content: dict[str, Any] = {"error": message, "request_id": request_id}
    return JSONResponse(content, status, headers)


def host_name(host: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address.

    Args:
        host: The header.

    Returns:
        The name in lower case.

    Example:
        >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("::1")
        ('localhost', '::1', '::1')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_foreign(scope: Scope, headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scope.get('scheme', 'http')}://{host}".lower():
        return True
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (is_link and scope["method"] == "GET" and scope["path"] == "/")
