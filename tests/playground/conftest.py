"""A playground on a free port of the loopback, and a page in a real browser that leaves nothing unnoticed."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import torch
import uvicorn
from PIL import Image

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.playground import Network, address_of, create_app, listen, open_network
from torchcaps.playground.network import in_turn
from torchcaps.playground.server import config

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "playground"
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def network() -> Network:
    """A network with fresh weights; for pictures the shipped one, or the run that TORCHCAPS_PLAY_RUN names."""
    run = os.environ.get("TORCHCAPS_PLAY_RUN", "")
    if run or os.environ.get("TORCHCAPS_PICTURES"):
        return open_network(None if run in ("", "shipped") else run)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, cnn = create_model("capsnet_small").eval(), create_model("cnn_small").eval()
    return Network("fresh", "capsnet_small with fresh weights", model, in_turn(load_data("digits", "test")), cnn)


def start(network: Network) -> Iterator[str]:
    """Serve in a thread: gives the address, and stops at the end."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(config(create_app(network)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield address_of(listener, "127.0.0.1")
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="session")
def url(network: Network) -> Iterator[str]:
    """The address of a running playground."""
    yield from start(network)


# Not for the whole session: as long as playwright is there, an event loop runs, and no test could start its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium of the system, without a window; skipped where it or playwright is missing."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    if program is None:
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A page at the playground; the test fails on a console error, a page error or a request that leaves loopback."""
    context = browser.new_context(base_url=url, viewport={"width": 1180, "height": 860})
    page = context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if is_local(request.url) else wrong.append(f"left for {request.url}"))
    page.goto("/")
    page.wait_for_selector("html[data-ready=yes]")
    yield page
    context.close()
    assert wrong == []


def is_local(address: str) -> bool:
    """Whether a request stays on this machine, or goes nowhere at all."""
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob") or parts.hostname in ("127.0.0.1", "localhost", "::1")


@pytest.fixture
def picture(page: Any) -> Any:
    """Save what a page shows for the docs, where TORCHCAPS_PICTURES asks for it; otherwise do nothing."""

    def save(name: str) -> None:
        if os.environ.get("TORCHCAPS_PICTURES"):
            PICTURES.mkdir(parents=True, exist_ok=True)
            # Bars and dots take a moment to get where they belong.
            page.wait_for_timeout(600)
            taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            # The commonest colours as they are, the others as the nearest of these: a third of the bytes.
            counted: Any = taken.getcolors(1 << 24)
            common = sorted(counted, reverse=True)[:256]
            palette = Image.new("P", (1, 1))
            palette.putpalette([level for _, colour in common for level in colour])
            taken.quantize(palette=palette, dither=Image.Dither.NONE).save(PICTURES / f"{name}.png", optimize=True)

    return save


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[httpx.Client]:
    """A client of the running playground."""
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def ask(client: httpx.Client) -> Any:
    """POST to a panel and read the answer, which must be one."""

    def call(path: str, **body: Any) -> Any:
        answer = client.post(f"/api/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return call


@pytest.fixture
def refuse(client: httpx.Client) -> Any:
    """POST to a panel what it cannot answer: the status and the sentence."""

    def call(path: str, **body: Any) -> tuple[int, str]:
        answer = client.post(f"/api/{path}", json=body)
        assert answer.status_code >= 400
        assert set(answer.json()) == {"error"}
        return answer.status_code, answer.json()["error"]

    return call


def unpack(images: dict[str, Any]) -> torch.Tensor:
    """Images as the server sent them: bytes [count, height, width, channels]."""
    shape = (images["count"], images["height"], images["width"], images["channels"])
    return torch.tensor(list(base64.b64decode(images["data"])), dtype=torch.uint8).view(shape)
