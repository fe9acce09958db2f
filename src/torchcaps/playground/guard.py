"""What stands before every request: who may ask, how much and how often; and an answer in words whatever happens."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")

HEADERS = {
    # Nothing from elsewhere, nothing inline, nobody's frame.
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

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one may ask for: bytes in a body, requests a second from one address, requests under way at once.

    The rate is far above what fifty people at their pages need, and holds a runaway loop back.
    """

    body: int = 256 * 1024
    rate: float = 1000.0
    burst: float = 2000.0
    waiting: int = 256


class RefusedError(HTTPException):
    """A request that is not answered, with the status and the sentence that say why.

    An HTTPException, since whoever reads a body lets no other through.
    """


class Buckets:
    """A token bucket per address; the addresses seen last are kept, so that memory stays bounded."""

    KEPT = 1024

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self.clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one token; False when there is none left."""
        now = self.clock()
        level, then = self._levels.pop(address, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        self._levels[address] = (level - 1 if level >= 1 else level, now)
        while len(self._levels) > self.KEPT:
            self._levels.popitem(last=False)
        return level >= 1


class Guard:
    """ASGI middleware: refuses foreign, oversized and too many requests, and puts the security headers on all answers.

    A page of another site must not speak to the playground: the Host must be one that it was started for (a name that
    was bent to this machine is not), an Origin must be its own, and a browser that says where a request comes from
    (Sec-Fetch-Site) must say that it comes from here. Only a link to the page itself may be followed from anywhere.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = LOOPBACK, limits: Limits | None = None) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self.limits = Limits() if limits is None else limits
        self.buckets = Buckets(self.limits.rate, self.limits.burst)
        self.waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def reply(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store" if scope["path"].startswith("/api/") else "no-cache")
            await send(message)

        self.waiting += 1
        try:
            self._admit(scope)
            await self.app(scope, self._counted(receive), reply)
        except RefusedError as refused:
            if not started:
                again = {"retry-after": "1"} if refused.status_code in (429, 503) else None
                await JSONResponse({"error": refused.detail}, refused.status_code, again)(scope, receive, reply)
        except Exception:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                sentence = "the playground made a mistake; its terminal says more"
                await JSONResponse({"error": sentence}, 500)(scope, receive, reply)
        finally:
            self.waiting -= 1

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._known(host_name(host)):
            raise RefusedError(
                403, "this playground is not known under that name; open it by the address that it printed"
            )
        if _foreign(scope, headers, host):
            raise RefusedError(403, "requests from another site are not answered")
        if self.waiting > self.limits.waiting:
            raise RefusedError(503, "too many requests are waiting; try again in a moment")
        client = scope.get("client")
        if not self.buckets.take(client[0] if client else ""):
            raise RefusedError(429, "too many requests; try again in a moment")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body:
            raise RefusedError(413, f"body: expected at most {self.limits.body} bytes")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] == "POST" and kind != "application/json":
            raise RefusedError(415, "body: expected the content type application/json")

    def _known(self, name: str) -> bool:
        if name in self.hosts:
            return True
        # Listening everywhere, it is called by whatever address the machine has; only a name can be bent.
        return any(host in WILDCARDS for host in self.hosts) and _is_address(name)

    def _counted(self, receive: Receive) -> Receive:
        """The same messages; too many bytes in them are refused, also where no length was announced."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.limits.body:
                raise RefusedError(413, f"body: expected at most {self.limits.body} bytes")
            return message

        return counted


def host_name(host: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address.

    >>> host_name("localhost:8000"), host_name("[::1]:8000"), host_name("::1")
    ('localhost', '::1', '::1')
    """
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _foreign(scope: Scope, headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scope.get('scheme', 'http')}://{host}".lower():
        return True
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (followed and scope["method"] == "GET" and scope["path"] == "/")
