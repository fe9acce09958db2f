"""Against a mirror on this machine that breaks off, stalls and lies."""

import hashlib
import http.server
import re
import threading
import time
from pathlib import Path

import pytest

from torchcaps.data import _download
from torchcaps.data._download import DownloadError, download

CONTENT = bytes(range(256)) * 400


def is_right(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(CONTENT).digest()


class Mirror(http.server.BaseHTTPRequestHandler):
    """What it does with the file is the first word of the path."""

    asked: list[tuple[str, str | None]] = []  # noqa: RUF012

    def do_GET(self):
        place = self.path.split("/")[1]
        wanted = self.headers.get("Range")
        self.asked.append((place, wanted))
        start = int(re.findall(r"\d+", wanted)[0]) if wanted else 0
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
        time.sleep(0.5)

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
    monkeypatch.setattr(_download, "TIMEOUT", 0.2)
    monkeypatch.setattr(Mirror, "asked", [])
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


def fetch(urls, target, **options):
    return download(urls, target, is_right, most=200_000, **options)


@pytest.mark.parametrize("place", ["good", "breaks_once", "breaks", "from_the_start", "no_length"])
def test_the_file_arrives_whole_and_alone(mirror, target, place):
    assert fetch(mirror(place), target).read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_only_the_rest_is_asked_for(mirror, target):
    fetch(mirror("breaks"), target)
    assert [wanted for _, wanted in Mirror.asked] == [None, "bytes=30000-", "bytes=60000-", "bytes=90000-"]


def test_another_mirror_goes_on_where_one_stalled(mirror, target):
    assert fetch(mirror("stalls", "good"), target).read_bytes() == CONTENT
    assert Mirror.asked[-1] == ("good", f"bytes={1000 * _download.ATTEMPTS}-")


def test_what_came_is_kept_for_the_next_time(mirror, target):
    with pytest.raises(DownloadError, match="timed out"):
        fetch(mirror("stalls"), target)
    assert not target.exists()
    assert len(target.with_name("file.part").read_bytes()) == 1000 * _download.ATTEMPTS
    assert fetch(mirror("good"), target).read_bytes() == CONTENT
    assert Mirror.asked[-1] == ("good", "bytes=4000-")
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("other", "wrong checksum"),
        ("shorter", "wrong checksum"),
        ("page", "a web page in the place of the file"),
        ("longer", "more than 200,000 bytes"),
        ("announces_more", "1,000,000,000,000,000 bytes announced, expected at most 200,000"),
        ("none", "HTTP 404"),
    ],
)
def test_a_mirror_that_lies_leaves_nothing(mirror, target, place, reason):
    with pytest.raises(DownloadError, match=f"http://127.0.0.1:.*/{place}/: .*{reason}"):
        fetch(mirror(place), target)
    assert list(target.parent.iterdir()) == []
    assert fetch(mirror(place, "good"), target).read_bytes() == CONTENT


def test_a_part_of_another_file_does_no_harm(mirror, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(b"from another time")
    assert fetch(mirror("good"), target).read_bytes() == CONTENT


def test_a_part_that_is_whole_needs_no_mirror(target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT)
    assert fetch([], target).read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_part_that_is_too_long(mirror, target):
    target.parent.mkdir()
    target.with_name("file.part").write_bytes(CONTENT + b"more")
    assert fetch(mirror("beyond"), target).read_bytes() == CONTENT


def test_another_range_than_asked_for(mirror, target):
    with pytest.raises(DownloadError, match="another range than the one asked for"):
        fetch(mirror("another_range"), target)
    assert target.with_name("file.part").read_bytes() == CONTENT[:50]


def test_broken_off_for_good(mirror, target, monkeypatch):
    monkeypatch.setattr(_download, "ATTEMPTS", 2)
    with pytest.raises(DownloadError, match=r"broke off after 60,000 of 102,400 bytes"):
        fetch(mirror("breaks"), target)


def test_nobody_listens(target):
    # Port 9 of this machine.
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9/: .*[Rr]efused"):
        fetch(["http://127.0.0.1:9/file"], target)
    with pytest.raises(DownloadError, match="no mirror is known"):
        fetch([], target)


def test_progress_is_told(mirror, target):
    told = []
    fetch(mirror("breaks_once"), target, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)


def test_many_at_a_time_fetch_it_once(mirror, target):
    threads = [threading.Thread(target=fetch, args=(mirror("breaks"), target)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert len(Mirror.asked) == 4
