"""Requests of an attacker: each gets one sentence as JSON, the log stays empty, and other clients are served."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from torchcaps.serving import Classifier, ServeLimits

from .conftest import noise, png, served

JSON = {"content-type": "application/json"}
PNG = {"content-type": "image/png"}
SMALL = ServeLimits(max_images=3, max_body=200_000, max_pixels=100_000, max_wait=0.0)


@pytest.fixture(scope="module")
def small(classifier: Classifier) -> Iterator[httpx.Client]:
    """A client of a server with small limits."""
    with served(classifier, limits=SMALL) as (_, client):
        yield client


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING):
        yield
    assert caplog.records == []


def refused(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "request_id"}
    assert "Traceback" not in answer.text
    assert len(answer.text) < 1000
    for word in words:
        assert word in answer.json()["error"]


def alive(client: httpx.Client) -> None:
    assert client.post("predict", content=png(noise(1)[0]), headers=PNG).status_code == 200


def header_of_a_large_png(width: int, height: int) -> bytes:
    """A valid PNG header with any size, and hardly any pixels."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT" + zlib.compress(b"\0" * 99))
    framed = [struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/../../pyproject.toml",
        "//etc/passwd",
        "/model/../predict/x",
        "/predict/%00",
        "/docs",
        "/redoc",
    ],
)
def test_no_path_leads_to_a_file(small: httpx.Client, path: str) -> None:
    port = small.base_url.port
    assert port is not None
    # A client library would tidy the path up.
    with socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), answer[:200]
    assert b'"request_id"' in answer


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 422, "JSON"),
        (b"{", 422, "JSON"),
        (b"\xff\xfe", 422, "JSON"),
        (b"[" * 100_000, 422, "JSON"),
        (b"null", 422, "object"),
        (b"[]", 422, "object"),
        (b'"images"', 422, "object"),
        (b"{}", 422, "images"),
        (b'{"images": []}', 422, "images"),
        (b'{"files": []}', 422, "files"),
        (b'{"images": null, "files": null}', 422, "images"),
        (b'{"images": [[[[0]]]], "files": ["AA=="]}', 422, "either"),
        (b'{"images": 3}', 422, "images"),
        (b'{"images": [[[0]]]}', 422, "images.0.0.0"),
        (b'{"images": [[[["0"]]]]}', 422, "images.0.0.0.0"),
        (b'{"images": [[[[true]]]]}', 422, "images.0.0.0.0"),
        (b'{"images": [[[[null]]]]}', 422, "images.0.0.0.0"),
        (b'{"images": [[[[NaN]]]]}', 422, "images.0.0.0.0"),
        (b'{"images": [[[[1e999]]]]}', 422, "images.0.0.0.0"),
        (b'{"images": [[[[0, 1], [0]]]]}', 400, "images.0"),
        (b'{"images": [[[[0]]]]}', 400, "[1, 28, 28]"),
        (b'{"images": [[]]}', 400, "images.0"),
        (b'{"images": [[[]]]}', 400, "images.0"),
        (b'{"images": [[[[0]]]], "invert": true}', 422, "invert"),
        (b'{"files": ["AA=="], "invert": 1}', 422, "invert"),
        (b'{"files": [3]}', 422, "files.0"),
        (b'{"files": ["?"]}', 400, "files.0"),
        ('{"files": ["\u00e4"]}'.encode(), 400, "files.0"),
        (b'{"files": [""]}', 400, "files.0"),
        (b'{"files": ["AAAA"]}', 400, "files.0"),
        (b'{"files": ["../../etc/passwd"]}', 400, "files.0"),
        (b'{"files": ["AAAA"], "path": "/etc/passwd"}', 422, "path"),
        (b'{"files": ["AAAA", "AAAA", "AAAA", "AAAA"]}', 400, "at most 3"),
    ],
)
def test_wrong_json(small: httpx.Client, body: bytes, status: int, word: str) -> None:
    refused(small.post("predict", content=body, headers=JSON), status, word)


@pytest.mark.parametrize("value", [-0.01, 1.01, 255])
def test_values_out_of_range(small: httpx.Client, value: float) -> None:
    images = noise(2)
    images[1, 0, 3, 4] = value
    refused(small.post("predict", json={"images": images.tolist()}), 400, "images.1", f"{value:g}")


def test_a_hundred_thousand_wrong_values_are_one_sentence(small: httpx.Client) -> None:
    body = b'{"images": [[[[' + b'"",' * 60_000 + b'""]]]]}'
    refused(small.post("predict", content=body, headers=JSON), 422, "images.0.0.0.0")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "image"),
        (b"not an image", "image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image"),
        (png(noise(1)[0])[:60], "image"),
        (header_of_a_large_png(40_000, 40_000), "pixels"),
        (header_of_a_large_png(317, 317), "pixels"),
        (header_of_a_large_png(2**31 - 1, 2**31 - 1), "image"),
    ],
)
def test_wrong_files(small: httpx.Client, content: bytes, word: str) -> None:
    refused(small.post("predict", content=content, headers=PNG), 400, word)
    listed = {"files": [base64.b64encode(content).decode()]}
    refused(small.post("predict", json=listed), 400, "files.0", word)


def test_decompression_bomb(client: httpx.Client) -> None:
    file = io.BytesIO()
    Image.new("L", (3900, 3900)).save(file, "PNG")
    bomb = file.getvalue()
    assert len(bomb) < 20_000
    # 15 million pixels are within the limit of the server, but not of so few bytes.
    Image.new("1", (3900, 3900)).save(file := io.BytesIO(), "TIFF", compression="group4")
    refused(client.post("predict", content=file.getvalue(), headers=PNG), 400, "per byte")
    assert client.post("predict", content=bomb, headers=PNG).status_code == 200
    alive(client)


def test_large_bodies(small: httpx.Client) -> None:
    refused(small.post("predict", content=b"x" * 200_001, headers=PNG), 413, "200000")

    def drip() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 10_000

    refused(small.post("predict", content=drip(), headers=PNG), 413, "200000")
    alive(small)


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "image"]
)
def test_other_content_types(small: httpx.Client, kind: str) -> None:
    refused(small.post("predict", content=b"{}", headers={"content-type": kind}), 415, "application/json")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "predict"), ("DELETE", "predict"), ("PUT", "model"), ("TRACE", "health")]
)
def test_other_methods(small: httpx.Client, method: str, path: str) -> None:
    answer = small.request(method, path)
    refused(answer, 405, method)
    assert answer.headers["allow"] in ("GET", "POST")


@pytest.mark.parametrize("query", ["invert=maybe", "invert=2", "invert=%00"])
def test_wrong_query(small: httpx.Client, query: str) -> None:
    refused(small.post(f"predict?{query}", content=png(noise(1)[0]), headers=PNG), 422, "invert")


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
def test_pages_of_other_sites(small: httpx.Client, headers: dict[str, str]) -> None:
    refused(small.post("predict", content=png(noise(1)[0]), headers={**PNG, **headers}), 403)


def test_slow_and_idle_clients_do_not_stop_others(small: httpx.Client) -> None:
    port = small.base_url.port
    assert port is not None
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 100000\r\n\r\n"
    with contextlib.ExitStack() as held:
        for data in [b"", b"POST /predict HT", head + b"\x89PNG"] * 20:
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=300))
            connection.sendall(data)
        alive(small)
    # They have gone in the middle of their requests.
    alive(small)


KEYS = ["images", "files", "x"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["images", "files", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


@FUZZ
@given(body=st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()), as_json=st.booleans())
def test_arbitrary_bodies(small: httpx.Client, body: bytes, as_json: bool) -> None:
    answer = small.post("predict", content=body, headers=JSON if as_json else PNG)
    refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


@FUZZ
@given(data=st.data())
def test_damaged_files(small: httpx.Client, data: Any) -> None:
    content = bytearray(png(noise(1)[0]))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    answer = small.post("predict", content=bytes(content), headers=PNG)
    if answer.status_code != 200:
        refused(answer, 400)
