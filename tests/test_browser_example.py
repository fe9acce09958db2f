"""The example page: an exported network in a browser, with onnxruntime-web from npm."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchcaps as tc

FOLDER = Path(__file__).parents[1] / "examples" / "browser"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a copy of the page with its package and the network."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = tmp_path / "browser"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules", "*.onnx"))
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the npm registry did not answer in five minutes")
    if done.returncode:
        pytest.skip(f"npm could not install onnxruntime-web: {done.stderr.strip()[-200:]}")
    tc.export(tc.create_model("branched_capsnet", pretrained="mnist"), folder / "mnist.onnx")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_drawn_digits_are_classified_in_the_browser(url: str) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None or program is None:
        pytest.skip("playwright or chromium is not installed")
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(url) else wrong.append(request.url))
        page.goto(url)
        page.wait_for_function("document.getElementById('status').value === 'Ready.'")
        box = page.locator("#drawing").bounding_box()
        assert box is not None
        strokes = {
            "1": [(0.52, 0.2), (0.5, 0.8)],
            "7": [(0.3, 0.25), (0.7, 0.25), (0.45, 0.8)],
        }
        for digit, points in strokes.items():
            page.click("#clear")
            (first, *rest) = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
            page.mouse.move(*first)
            page.mouse.down()
            for point in rest:
                page.mouse.move(*point, steps=8)
            page.mouse.up()
            page.wait_for_function("document.querySelectorAll('#classes li').length === 10")
            assert (page.locator("#status").text_content() or "").startswith(f"This is a {digit} ")
        browser.close()
    assert wrong == []
