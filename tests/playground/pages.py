"""Helpers for tests of the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest

READY = "html[data-ready=yes]"
BACK, FORWARD = "[aria-label='One iteration back']", "[aria-label='One iteration on']"
FILL = "node => [Number(getComputedStyle(node).fillOpacity), getComputedStyle(node).fill]"
SEVEN = ((0.3, 0.25), (0.7, 0.25), (0.45, 0.8))


def state(page: Any) -> dict[str, Any]:
    """The state in the address, after it has been written."""
    page.wait_for_timeout(300)
    return {key: json.loads(values[0]) for key, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()}


def until(page: Any, check: Callable[[], bool]) -> None:
    """Wait for the effect of a response."""
    for _ in range(200):
        if check():
            return
        page.wait_for_timeout(50)
    pytest.fail("the expected state did not appear")


def slow_down(page: Any, path: str, seconds: float) -> None:
    """Delay the responses to the page's requests for a path, as on a busy machine."""
    page.evaluate(
        """([path, wait]) => {
          const real = window.fetch;
          window.fetch = async (address, options) => {
            const answer = await real(address, options);
            if (String(address).includes(path)) await new Promise((done) => setTimeout(done, wait));
            return answer;
          };
        }""",
        [path, 1000 * seconds],
    )


def opened(page: Any, state: str) -> Any:
    """The page as a link with this state shows it."""
    page.goto("about:blank")
    page.goto(f"/#{state}")
    page.wait_for_selector(READY)
    page.wait_for_load_state("networkidle")
    return page


def pixels(page: Any, canvas: str) -> str:
    """The pixels of a canvas."""
    return page.locator(canvas).first.evaluate("canvas => canvas.toDataURL()")


def changes(page: Any, canvas: str, action: Callable[[], Any]) -> None:
    """Check that an action changes the pixels of a canvas."""
    before = pixels(page, canvas)
    action()
    page.wait_for_function(
        "([canvas, before]) => document.querySelector(canvas).toDataURL() !== before", arg=[canvas, before]
    )


def stroke(page: Any, *points: tuple[float, float]) -> None:
    """Draw on the pad with the mouse, at places from 0 to 1."""
    box = page.locator("#pad").bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*at[0])
    page.mouse.down()
    for place in at[1:]:
        page.mouse.move(*place, steps=8)
    page.mouse.up()
