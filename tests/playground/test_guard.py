from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from torchcaps.playground.guard import HEADERS, LOOPBACK, Buckets, Guard, Limits, host_name

JSON = {"content-type": "application/json"}


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def fail(request: Request) -> PlainTextResponse:
    raise RuntimeError("a secret of the server")


def guarded(hosts: Iterable[str] = LOOPBACK, **limits: Any) -> Guard:
    routes = [Route(path, echo, methods=["GET", "POST"]) for path in ("/", "/api/echo")]
    return Guard(Router([*routes, Route("/api/fail", fail)]), hosts, Limits(**limits))


def ask(app: Any, method: str = "GET", path: str = "/api/echo", **options: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8017") as client:
            return await client.request(method, path, **options)

    return asyncio.run(go())


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert words in answer.json()["error"]
    assert all(answer.headers[name] == value for name, value in HEADERS.items())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8017", "[::1]:8017", "LOCALHOST:1"])
def test_the_loopback_is_known_by_all_its_names(host: str) -> None:
    assert ask(guarded(), headers={"host": host}).text == "0 bytes"


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8017", "192.168.0.7", "", "127.0.0.1.nip.io"])
def test_a_name_bent_to_this_machine_is_refused(host: str) -> None:
    refused(ask(guarded(), headers={"host": host}), 403, "is not known under that name")


def test_listening_everywhere_any_address_is_known_but_no_name() -> None:
    app = guarded(["0.0.0.0"])
    assert ask(app, headers={"host": "192.168.0.7:8017"}).status_code == 200
    refused(ask(app, headers={"host": "evil.example"}), 403, "is not known")


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
def test_another_site_is_refused(headers: dict[str, str]) -> None:
    refused(ask(guarded(), headers=headers), 403, "requests from another site are not answered")


@pytest.mark.parametrize(
    "headers", [{"origin": "http://localhost:8017"}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}]
)
def test_the_page_itself_is_answered(headers: dict[str, str]) -> None:
    assert ask(guarded(), "POST", headers={**headers, **JSON}, content=b"{}").text == "2 bytes"


def test_a_link_from_elsewhere_leads_to_the_page_and_no_frame_does() -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert ask(guarded(), path="/", headers=followed).status_code == 200
    refused(ask(guarded(), path="/", headers={**followed, "sec-fetch-dest": "iframe"}), 403, "another site")
    refused(ask(guarded(), "POST", path="/", headers=followed), 403, "another site")


def test_a_body_is_as_large_as_allowed_and_no_larger() -> None:
    app = guarded(body=10)
    assert ask(app, "POST", content=b"x" * 10, headers=JSON).text == "10 bytes"
    refused(ask(app, "POST", content=b"x" * 11, headers=JSON), 413, "body: expected at most 10 bytes")


def test_a_body_that_does_not_say_its_size_is_counted() -> None:
    async def drip() -> Any:
        for _ in range(4):
            yield b"xxx"

    refused(ask(guarded(body=10), "POST", content=drip(), headers=JSON), 413, "body: expected at most 10 bytes")


@pytest.mark.parametrize("length", ["-1", "many", "1e3", "9" * 30])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    headers = {**JSON, "content-length": length}
    refused(ask(guarded(), "POST", content=b"", headers=headers), 413, "body: expected at most")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
def test_a_form_of_another_page_cannot_be_sent(kind: str) -> None:
    answer = ask(guarded(), "POST", content=b"{}", headers={"content-type": kind})
    refused(answer, 415, "body: expected the content type application/json")


def test_too_many_requests_are_held_back() -> None:
    app = guarded(rate=0.001, burst=3)
    assert [ask(app).status_code for _ in range(3)] == [200] * 3
    answer = ask(app)
    refused(answer, 429, "too many requests; try again in a moment")
    assert answer.headers["retry-after"] == "1"


def test_too_many_at_once_are_told_to_wait() -> None:
    app = guarded(waiting=0)
    refused(ask(app), 503, "too many requests are waiting; try again in a moment")
    assert app.waiting == 0


def test_a_bucket_fills_again_and_the_oldest_are_forgotten() -> None:
    now = [0.0]
    buckets = Buckets(rate=2, burst=2, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b")
    now[0] = 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    for number in range(Buckets.KEPT + 5):
        buckets.take(str(number))
    assert len(buckets._levels) == Buckets.KEPT
    # Forgotten, and therefore full.
    assert buckets.take("a")


def test_a_failure_is_a_sentence_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(guarded(), path="/api/fail")
    refused(answer, 500, "the playground made a mistake; its terminal says more")
    assert "secret" not in answer.text
    assert "a secret of the server" in caplog.text


def test_what_is_computed_is_not_kept_and_the_page_is_asked_for_anew() -> None:
    assert ask(guarded()).headers["cache-control"] == "no-store"
    assert ask(guarded(), path="/").headers["cache-control"] == "no-cache"


def test_nothing_from_elsewhere_and_nothing_inline() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(("host", "name"), [("[fe80::1]", "fe80::1"), ("A.b:1", "a.b"), ("", ""), ("::1", "::1")])
def test_the_name_in_a_host(host: str, name: str) -> None:
    assert host_name(host) == name
