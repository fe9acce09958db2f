"""A playground on a free port of the loopback interface, and a page in a real browser."""

from __future__ import annotations

import base64
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import torch
from PIL import Image

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.playground import PlaygroundNetwork, create_app, open_network
from torchcaps.playground.network import interleave_classes
from torchcaps.serving import address_of, listen, make_server

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "playground"


@pytest.fixture(scope="session")
def network() -> PlaygroundNetwork:
    """An untrained network; for screenshots the pretrained one, or the run in TORCHCAPS_PLAY_RUN."""
    run = os.environ.get("TORCHCAPS_PLAY_RUN", "")
    if run or os.environ.get("TORCHCAPS_PICTURES"):
        return open_network(None if run in ("", "shipped") else run)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, cnn = create_model("capsnet_small").eval(), create_model("cnn_small").eval()
    return PlaygroundNetwork(
        "fresh", "capsnet_small with fresh weights", model, interleave_classes(load_data("digits", "test")), cnn
    )


def start(network: PlaygroundNetwork) -> Iterator[str]:
    """Serve in a thread, yield the address, and stop."""
    with listen("127.0.0.1", 0) as listener:
        server = make_server(create_app(network))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield address_of(listener, "127.0.0.1")
        server.should_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="session")
def url(network: PlaygroundNetwork) -> Iterator[str]:
    """The address of a running playground."""
    yield from start(network)


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """A page of the playground; a console error, a page error or a request to another host fails the test."""
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if is_local(request.url) else wrong.append(f"request to {request.url}"))
    page.goto("/")
    page.wait_for_selector("html[data-ready=yes]")
    yield page
    context.close()
    assert wrong == []


def is_local(address: str) -> bool:
    """Whether an address is on this machine or needs no request."""
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob") or parts.hostname in ("127.0.0.1", "localhost", "::1")


@pytest.fixture
def picture(page: Any) -> Any:
    """Save a screenshot for the docs if TORCHCAPS_PICTURES is set; otherwise do nothing."""

    def save(name: str) -> None:
        if os.environ.get("TORCHCAPS_PICTURES"):
            PICTURES.mkdir(parents=True, exist_ok=True)
            # Wait for the end of transitions.
            page.wait_for_timeout(600)
            taken = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
            # A palette of the most frequent colours needs a third of the bytes.
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
    """POST to a panel and return the response, which must be 200."""

    def call(path: str, **body: Any) -> Any:
        response = client.post(f"/api/{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()

    return call


@pytest.fixture
def refuse(client: httpx.Client) -> Any:
    """POST an invalid body to a panel and return status and error."""

    def call(path: str, **body: Any) -> tuple[int, str]:
        response = client.post(f"/api/{path}", json=body)
        assert response.status_code >= 400
        assert set(response.json()) == {"error", "request_id"}
        return response.status_code, response.json()["error"]

    return call


def unpack(images: dict[str, Any]) -> torch.Tensor:
    """Decode images of the API: bytes [count, height, width, channels]."""
    shape = (images["count"], images["height"], images["width"], images["channels"])
    return torch.tensor(list(base64.b64decode(images["data"])), dtype=torch.uint8).view(shape)
