from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from torchcaps.data import DATASETS
from torchcaps.models import MODELS
from torchcaps.nn import DECODERS, LOSSES, ROUTERS
from torchcaps.ops import ROUTINGS

# On a busy machine examples take longer to generate and to run, which is no error of the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A process that a script started in the background ignores these signals, and training respects that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Of Chromium: nothing but the tests reaches the network.
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

# All that programs and plugins can add to.
REGISTRIES: tuple[Any, ...] = (DATASETS, DECODERS, LOSSES, MODELS, ROUTERS, ROUTINGS)


def _state() -> dict[str, Any]:
    """What the whole process computes with, and what changes the bits or the speed of all that comes after."""
    return {
        "threads": torch.get_num_threads(),
        "subnormal numbers": bool(torch.full((1,), 2e-39) * 0.5 > 0),
        "matmul precision": torch.get_float32_matmul_precision(),
        # Processes that later tests start inherit them.
        "variables": {name: value for name, value in os.environ.items() if name.startswith("TORCHCAPS_")},
    }


@pytest.fixture(autouse=True)
def _same_names() -> Iterator[None]:
    """Forget what a test registers: later tests list all models, data sets and so on."""
    before = [(registry, dict(registry._items)) for registry in REGISTRIES]
    yield
    for registry, items in before:
        registry._items.clear()
        registry._items.update(items)


@pytest.fixture(autouse=True)
def _same_state() -> Iterator[None]:
    """A test must not change the process: with more threads, for example, later tests would slow each other down."""
    before = _state()
    yield
    if (left := _state()) != before:
        torch.set_num_threads(before["threads"])
        for name in left["variables"].keys() - before["variables"].keys():
            del os.environ[name]
        os.environ.update(before["variables"])
        pytest.fail(f"expected the test to leave {before}, got {left}")


# Not for the whole session: playwright runs an event loop, and no other test could start its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium without a window; tests are skipped without it or playwright."""
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
