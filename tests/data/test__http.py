"""Downloads from a local mirror that breaks connections, stalls and sends wrong files."""

import hashlib
import http.server
import re
import threading
import time
from pathlib import Path

import pytest

from torchcaps.data import _http
from torchcaps.data._http import DownloadError, download

CONTENT = bytes(range(256)) * 400


def is_right(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(CONTENT).digest()


class Mirror(http.server.BaseHTTPRequestHandler):
    """The first part of the path selects the behaviour."""

    requests: list[tuple[str, str | None]] = []  # noqa: RUF012

    def do_GET(self):
        place = self.path.split("/")[1]
        requested = self.headers.get("Range")
        self.requests.append((place, requested))
        start = int(re.findall(r"\d+", requested)[0]) if requested else 0
        getattr(self, place, self.none)(start)

    def send(self, content, *, start=0, length=None, status=None, kind="application/octet-stream"):
        self.send_response(status or (206 if start else 200))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Type", kind)
        if length != "":
            self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def good(self, start):
        self.send(CONTENT[start:], start=start)

    def breaks(self, start):
        """30,000 bytes at a time."""
        self.send(CONTENT[start : start + 30_000], start=start, length=len(CONTENT) - start)

    def breaks_once(self, start):
        self.send(CONTENT[start:] if start else CONTENT[:30_000], start=start, length=len(CONTENT) - start)

    def stalls(self, start):
        self.send(CONTENT[start : start + 1000], start=start, length=len(CONTENT) - start)
        self.wfile.flush()
        time.sleep(1.5)

    def from_the_start(self, start):
        self.send(CONTENT)

    def another_range(self, start):
        self.send(CONTENT[7:], start=7) if start else self.send(CONTENT[:50], length=len(CONTENT))

    def other(self, start):
        self.send(b"another file"[start:], start=start)

    def no_length(self, start):
        self.send(CONTENT, length="")

    def longer(self, start):
        self.send(CONTENT * 3, length="")

    def shorter(self, start):
        self.send(CONTENT, length=100)

    def announces_more(self, start):
        self.send(CONTENT, length=10**15)

    def page(self, start):
        self.send(b"<html>not here</html>", kind="text/html; charset=utf-8")

    def beyond(self, start):
        self.send_error(416) if start else self.good(0)

    def none(self, start):
        self.send_error(404)

    def log_message(self, format, *args):  # noqa: A002
        pass


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setattr(_http, "TIMEOUT", 0.6)
    monkeypatch.setattr(Mirror, "requests", [])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield lambda *places: [f"http://127.0.0.1:{server.server_port}/{place}/file" for place in places]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "cache" / "file"


def get(urls, target, **options):
    return download(urls, target, is_right, max_bytes=200_000, **options)


@pytest.mark.parametrize("place", ["good", "breaks_once", "breaks", "from_the_start", "no_length"])
def test_download(mirror, target, place):
    assert get(mirror(place), target).read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_ranges(mirror, target):
    get(mirror("breaks"), target)
    assert [requested for _, requested in Mirror.requests] == [None, "bytes=30000-", "bytes=60000-", "bytes=90000-"]


def test_next_mirror_resumes(mirror, target):
    assert get(mirror("stalls", "good"), target).read_bytes() == CONTENT
    assert Mirror.requests[-1] == ("good", f"bytes={1000 * _http.ATTEMPTS}-")


def test_partial_file_is_kept(mirror, target):
    with pytest.raises(DownloadError, match="timed out"):
        get(mirror("stalls"), target)
    assert not target.exists()
    assert len(target.with_name("file.part").read_bytes()) == 1000 * _http.ATTEMPTS
    assert get(mirror("good"), target).read_bytes() == CONTENT
    assert Mirror.requests[-1] == ("good", "bytes=4000-")
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("other", "wrong checksum"),
        ("shorter", "wrong checksum"),
        ("page", "got a web page"),
        ("longer", "more than 200,000 bytes"),
        ("announces_more", "1,000,000,000,000,000 bytes announced, expected at most 200,000"),
        ("none", "HTTP 404"),
    ],
)
def test_wrong_file_is_deleted(mirror, target, place, reason):
    with pytest.raises(DownloadError, match=f"http://127.0.0.1:.*/{place}/: .*{reason}"):
        get(mirror(place), target)
    assert list(target.parent.iterdir()) == []
    assert get(mirror(place, "good"), target).read_bytes() == CONTENT


def test_wrong_partial_file(mirror, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(b"from another time")
    assert get(mirror("good"), target).read_bytes() == CONTENT


def test_complete_partial_file(target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT)
    assert get([], target).read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_too_long_partial_file(mirror, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT + b"more")
    assert get(mirror("beyond"), target).read_bytes() == CONTENT


def test_wrong_range(mirror, target):
    with pytest.raises(DownloadError, match="another range than requested"):
        get(mirror("another_range"), target)
    assert target.with_name("file.part").read_bytes() == CONTENT[:50]


def test_attempts_are_limited(mirror, target, monkeypatch):
    monkeypatch.setattr(_http, "ATTEMPTS", 2)
    with pytest.raises(DownloadError, match=r"connection lost after 60,000 of 102,400 bytes"):
        get(mirror("breaks"), target)


def test_unreachable_mirror(target):
    # Port 9 of this machine.
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/: .*[Rr]efused"):
        get(["http://127.0.0.1:9/file"], target)
    with pytest.raises(DownloadError, match="no mirror is known"):
        get([], target)


def test_progress(mirror, target):
    reports = []
    get(mirror("breaks_once"), target, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (len(CONTENT), len(CONTENT))
    assert reports == sorted(reports)


def test_concurrent_downloads(mirror, target):
    threads = [threading.Thread(target=get, args=(mirror("breaks"), target)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert len(Mirror.requests) == 4
