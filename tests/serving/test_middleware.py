from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from torchcaps.serving.middleware import (
    LOOPBACK,
    SECURITY_HEADERS,
    RateLimiter,
    RequestLimits,
    SecurityMiddleware,
    host_name,
)

JSON = {"content-type": "application/json"}


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def fail(request: Request) -> PlainTextResponse:
    raise RuntimeError("a secret of the server")


def make_app(hosts: Iterable[str] = LOOPBACK, token: str | None = None, **limits: Any) -> SecurityMiddleware:
    routes = [Route(path, echo, methods=["GET", "POST"]) for path in ("/", "/api/echo")]
    return SecurityMiddleware(Router([*routes, Route("/api/fail", fail)]), hosts, RequestLimits(**limits), token)


def ask(app: Any, method: str = "GET", path: str = "/api/echo", **options: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8017") as client:
            return await client.request(method, path, **options)

    return asyncio.run(go())


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "request_id"}
    assert words in answer.json()["error"]
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert all(answer.headers[name] == value for name, value in SECURITY_HEADERS.items())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8017", "[::1]:8017", "LOCALHOST:1"])
def test_loopback_names(host: str) -> None:
    assert ask(make_app(), headers={"host": host}).text == "0 bytes"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8017", "192.168.0.7", "", "127.0.0.1.nip.io"])
def test_dns_rebinding_is_refused(host: str) -> None:
    refused(ask(make_app(), headers={"host": host}), 403, "host: expected")


def test_wildcard_host_accepts_addresses_only() -> None:
    app = make_app(["0.0.0.0"])
    assert ask(app, headers={"host": "192.168.0.7:8017"}).status_code == 200
    refused(ask(app, headers={"host": "evil.example"}), 403, "host: expected")


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://localhost:8017"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
    ],
)
def test_foreign_origin_is_refused(headers: dict[str, str]) -> None:
    refused(ask(make_app(), headers=headers), 403, "another site")


@pytest.mark.parametrize(
    "headers", [{"origin": "http://localhost:8017"}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}]
)
def test_own_origin_is_accepted(headers: dict[str, str]) -> None:
    assert ask(make_app(), "POST", headers={**headers, **JSON}, content=b"{}").text == "2 bytes"


def test_foreign_link_opens_the_page_but_no_frame() -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert ask(make_app(), path="/", headers=followed).status_code == 200
    refused(ask(make_app(), path="/", headers={**followed, "sec-fetch-dest": "iframe"}), 403, "another site")
    refused(ask(make_app(), "POST", path="/", headers=followed), 403, "another site")


def test_body_size_limit() -> None:
    app = make_app(body=10)
    assert ask(app, "POST", content=b"x" * 10, headers=JSON).text == "10 bytes"
    refused(ask(app, "POST", content=b"x" * 11, headers=JSON), 413, "body: expected at most 10 bytes")


def test_body_size_limit_without_content_length() -> None:
    async def drip() -> Any:
        for _ in range(4):
            yield b"xxx"

    refused(ask(make_app(body=10), "POST", content=drip(), headers=JSON), 413, "body: expected at most 10 bytes")


@pytest.mark.parametrize("length", ["-1", "many", "1e3", "9" * 30])
def test_invalid_content_length(length: str) -> None:
    headers = {**JSON, "content-length": length}
    refused(ask(make_app(), "POST", content=b"", headers=headers), 413, "body: expected at most")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
def test_other_content_types_are_refused(kind: str) -> None:
    answer = ask(make_app(), "POST", content=b"{}", headers={"content-type": kind})
    refused(answer, 415, "content-type: expected application/json")


def test_rate_limit() -> None:
    app = make_app(rate=0.001, burst=3)
    assert [ask(app).status_code for _ in range(3)] == [200] * 3
    answer = ask(app)
    refused(answer, 429, "too many requests per second")
    assert answer.headers["retry-after"] == "1"


def test_concurrency_limit() -> None:
    app = make_app(waiting=0)
    refused(ask(app), 503, "too many requests in progress")
    assert app.waiting == 0


def test_rate_limiter_refills_and_drops_old_addresses() -> None:
    now = [0.0]
    limiter = RateLimiter(rate=2, burst=2, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(3)] == [True, True, False]
    assert limiter.take("b")
    now[0] = 0.5
    assert [limiter.take("a") for _ in range(2)] == [True, False]
    for number in range(RateLimiter.MAX_ADDRESSES + 5):
        limiter.take(str(number))
    assert len(limiter._levels) == RateLimiter.MAX_ADDRESSES
    # A dropped address starts with a full bucket.
    assert limiter.take("a")


def test_internal_error_is_logged_with_its_request_id(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(make_app(), path="/api/fail")
    refused(answer, 500, "internal error")
    assert "secret" not in answer.text
    assert "a secret of the server" in caplog.text
    assert answer.json()["request_id"] in caplog.text


def test_cache_control() -> None:
    assert ask(make_app()).headers["cache-control"] == "no-store"
    assert ask(make_app(), path="/").headers["cache-control"] == "no-cache"


def test_content_security_policy() -> None:
    policy = SECURITY_HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(("host", "name"), [("[fe80::1]", "fe80::1"), ("A.b:1", "a.b"), ("", ""), ("::1", "::1")])
def test_host_name(host: str, name: str) -> None:
    assert host_name(host) == name


def test_request_ids_are_unique_and_not_taken_from_the_client() -> None:
    ids = {ask(make_app(), headers={"x-request-id": "forged"}).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5
    assert "forged" not in ids


@pytest.mark.parametrize(
    "options",
    [
        {"path": "/?token=secret"},
        {"headers": {"cookie": "torchcaps_token=secret"}},
        {"headers": {"authorization": "Bearer secret"}},
    ],
)
def test_valid_token(options: dict[str, Any]) -> None:
    answer = ask(make_app(token="secret"), **options)
    assert answer.status_code == 200
    assert ("set-cookie" in answer.headers) == ("path" in options)


def test_token_cookie_is_hidden_from_scripts_and_other_sites() -> None:
    cookie = ask(make_app(token="secret"), path="/?token=secret").headers["set-cookie"]
    assert cookie == "torchcaps_token=secret; Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "/"},
        {"path": "/?token=other"},
        {"path": "/?token="},
        {"headers": {"cookie": "torchcaps_token=secre"}},
        {"headers": {"authorization": "Bearer"}},
        {"headers": {"authorization": "Bearer s\u00e9cret".encode()}},
    ],
)
def test_invalid_token(options: dict[str, Any]) -> None:
    answer = ask(make_app(token="secret"), **options)
    refused(answer, 401, "token: expected")
    assert "set-cookie" not in answer.headers


def test_no_token_is_needed_by_default() -> None:
    assert "set-cookie" not in ask(make_app(), path="/?token=anything").headers


@pytest.mark.parametrize("path", ["/%00", "/api/echo%0a", "/%1b[2J", "/a%7f"])
def test_control_characters_in_a_path_are_refused(path: str) -> None:
    refused(ask(make_app(), path=path), 400, "path: expected printable characters")


def test_query_that_is_not_ascii_is_refused() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": "/api/echo", "query_string": b"\xa3", "headers": headers}
    asyncio.run(make_app()(scope, receive, send))
    assert sent[0]["status"] == 400
