import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from torchcaps.data._files import DataFile, at_hand, data_folders, obtain
from torchcaps.errors import DataError

CONTENT = gzip.compress(b"some data" * 1000)
FILE = DataFile("some.gz", hashlib.sha256(CONTENT).hexdigest(), "")


class Mirror(BaseHTTPRequestHandler):
    """Serves the file at /good/, another one at /other/, half of it at /half/, and nothing elsewhere."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self):
        self.asked.append(self.path)
        body = {"/good/some.gz": CONTENT, "/other/some.gz": b"another file", "/half/some.gz": CONTENT[:50]}
        if self.path not in body:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) if "half" in self.path else len(body[self.path])))
        self.end_headers()
        self.wfile.write(body[self.path])

    def log_message(self, format, *args):  # noqa: A002
        pass


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(Mirror, "asked", [])
    server = HTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setattr("torchcaps.data._files._cache", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "set"


def test_the_users_folder_comes_first(tmp_path, monkeypatch, cache):
    assert data_folders("set") == [cache]
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    assert data_folders("set") == [tmp_path / "own" / "set", cache]


def test_at_hand_gzipped_or_not(tmp_path):
    assert at_hand("some.gz", [tmp_path]) is None
    (tmp_path / "some").write_bytes(b"plain")
    assert at_hand("some.gz", [tmp_path / "elsewhere", tmp_path]) == tmp_path / "some"
    (tmp_path / "some.gz").write_bytes(b"zipped")
    assert at_hand("some.gz", [tmp_path]) == tmp_path / "some.gz"


def test_downloads_once(mirror, cache):
    path = obtain(FILE, "set", [f"{mirror}/good/"])
    assert path == cache / "some.gz"
    assert path.read_bytes() == CONTENT
    assert obtain(FILE, "set", [f"{mirror}/good/"]) == path
    assert Mirror.asked == ["/good/some.gz"]


def test_goes_on_to_the_next_mirror(mirror, cache):
    mirrors = [f"{mirror}/{place}/" for place in ("none", "other", "half", "good")]
    assert obtain(FILE, "set", mirrors).read_bytes() == CONTENT
    assert len(Mirror.asked) == 4


@pytest.mark.parametrize(
    ("place", "reason"),
    [("other", "wrong checksum"), ("half", "(Incomplete|wrong checksum)"), ("no", "404")],
)
def test_a_failed_download_leaves_nothing(mirror, cache, place, reason):
    with pytest.raises(DataError, match=rf"some\.gz: expected it in .*got no such file.*{reason}.*set TORCHCAPS_DATA"):
        obtain(FILE, "set", [f"{mirror}/{place}/"])
    assert list(cache.iterdir()) == []


def test_no_network(cache):
    # Port 9 of this machine: nobody listens there.
    with pytest.raises(DataError, match=r"no mirror gave it .*set TORCHCAPS_DATA to a folder that holds set/"):
        obtain(FILE, "set", ["http://127.0.0.1:9/"])


def test_cache_that_cannot_be_written(mirror, cache):
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"some\.gz: expected it in"):
        obtain(FILE, "set", [f"{mirror}/good/"])
