import asyncio
import importlib.util
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from torchcaps.data import load_data
from torchcaps.models import create_model
from torchcaps.playground import PlaygroundNetwork, create_app
from torchcaps.playground.network import interleave_classes
from torchcaps.serving import address_of, listen, make_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load_playground", ROOT / "scripts" / "load_playground.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules["load_playground"] = module
    spec.loader.exec_module(module)
    return module


def test_load_of_fifty_clients(script: ModuleType) -> None:
    model, cnn = create_model("capsnet_small").eval(), create_model("cnn_small").eval()
    network = PlaygroundNetwork("fresh", "", model, interleave_classes(load_data("digits", "test")), cnn)
    network.warm_up()
    with listen("127.0.0.1", 0) as listener:
        server = make_server(create_app(network))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        done = asyncio.run(script.load(address_of(listener, "127.0.0.1"), 50, 2.5)).summary()
        alone, computed = asyncio.run(script.alone(address_of(listener, "127.0.0.1"), os.getpid()))
        server.should_exit = True
        thread.join(timeout=300)
    assert (done["lost"], done["first_lost"]) == (0, [])
    assert done["answered"] >= 50
    assert set(alone) == {path or "/" for path, _ in script.REQUESTS}
    assert min(alone.values()) > 0
    assert set(computed) in (set(alone), set())
    assert min(computed.values(), default=1) >= 0


def test_invalid_loads(script: ModuleType) -> None:
    for url, clients, seconds, limit in [
        ("http://example.com/", 1, 1, "this machine"),
        ("http://127.0.0.1:1/", 1000, 1, "200 clients"),
        ("http://127.0.0.1:1/", 1, 1e6, "600 seconds"),
    ]:
        with pytest.raises(SystemExit, match=limit):
            asyncio.run(script.load(url, clients, seconds))


def test_lost_requests(script: ModuleType) -> None:
    with listen("127.0.0.1", 0) as listener:
        url = address_of(listener, "127.0.0.1")
    # The port is closed.
    done = asyncio.run(script.load(url, 2, 0.05)).summary()
    assert done["answered"] == 0
    assert done["lost"] > 0
    assert done["first_lost"][0].endswith("ConnectError")


def test_memory(script: ModuleType) -> None:
    memory = script.memory_mb(os.getpid())
    assert memory is None or memory > 10
    assert script.memory_mb(-1) is None


def test_cpu_time(script: ModuleType) -> None:
    before = script.cpu_ms(os.getpid())
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert before is None or 40 < script.cpu_ms(os.getpid()) - before < 5000
    assert script.cpu_ms(None) is None
