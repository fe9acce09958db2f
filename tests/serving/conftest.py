"""A prediction server on a free port of the loopback interface."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import torch
from PIL import Image
from torch import Tensor

from torchcaps.evaluation import Rejection
from torchcaps.models import create_model
from torchcaps.serving import Classifier, GracefulServer, address_of, create_server_app, listen, make_server

NAMES = tuple("abcdefghij")
KEY = "a-key-of-this-test-0123456789"


@pytest.fixture(scope="session")
def classifier() -> Classifier:
    """An untrained network with a temperature, and a threshold that rejects about half of all noise."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = create_model("capsnet_small").eval()
    model.temperature = 0.5
    with torch.inference_mode():
        activations = model(noise(40)).activations
    threshold = -float(activations.max(dim=1).values.median())
    return Classifier("fresh", model, NAMES, rejection=Rejection({"activation": threshold}, 0.5, 40))


def noise(count: int) -> Tensor:
    """Images [count, 1, 28, 28] whose values are multiples of 1/255, as files hold them."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, (count, 1, 28, 28), generator=generator).float() / 255


def png(image: Tensor) -> bytes:
    """The content of a PNG file of an image [1, H, W]."""
    file = io.BytesIO()
    Image.fromarray((image[0] * 255).round().to(torch.uint8).numpy()).save(file, "PNG")
    return file.getvalue()


@contextmanager
def served(classifier: Classifier, **options: Any) -> Iterator[tuple[GracefulServer, httpx.Client]]:
    """A running server and a client of it."""
    with listen("127.0.0.1", 0) as listener:
        server = make_server(create_server_app(classifier, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        with httpx.Client(base_url=address_of(listener, "127.0.0.1"), timeout=300) as client:
            yield server, client
        server.should_exit = True
        thread.join(timeout=300)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def client(classifier: Classifier) -> Iterator[httpx.Client]:
    """A client of a server with default limits."""
    with served(classifier) as (_, client):
        yield client
