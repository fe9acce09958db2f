"""What the tests of the page share: its address, and waiting for an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest


def state(page: Any) -> dict[str, Any]:
    """What the address says, once it has been written."""
    page.wait_for_timeout(300)
    return {key: json.loads(values[0]) for key, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()}


def until(page: Any, check: Callable[[], bool]) -> None:
    """Wait for what an answer of the server will bring."""
    for _ in range(200):
        if check():
            return
        page.wait_for_timeout(50)
    pytest.fail("it did not come")
