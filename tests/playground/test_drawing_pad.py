from __future__ import annotations

from typing import Any

import pytest

from .pages import READY, SEVEN, changes, opened, state, stroke


def test_undo_and_clear(page: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    stroke(page, *SEVEN)
    stroke(page, (0.4, 0.5), (0.65, 0.5))
    changes(page, "#pad", lambda: page.click("#undo"))
    changes(page, "#pad", lambda: page.click("#clear"))
    page.wait_for_function("() => document.querySelector('#verdict').textContent === 'no drawing yet'")
    assert page.locator("#undo").is_disabled()


def test_keyboard_draws(page: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    page.focus("#pad")
    page.keyboard.press("Space")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_function("() => location.hash.includes('strokes')")
    changes(page, "#pad", lambda: page.keyboard.press("Backspace"))


@pytest.mark.parametrize("key", ["Backspace", "Delete"])
def test_undo_lifts_the_pen(page: Any, key: str) -> None:
    opened(page, 'panel="draw"&input=0')
    page.focus("#pad")
    for pressed in ("Space", "ArrowRight", key, "ArrowDown", "ArrowDown"):
        page.keyboard.press(pressed)
    assert state(page)["strokes"] == ""
    page.keyboard.press("Space")
    page.keyboard.press("ArrowLeft")
    # Two points, of four letters each: the new stroke and nothing of the one before.
    assert len(state(page)["strokes"]) == 8


def test_undo_ends_the_current_stroke(page: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 100, steps=4)
    page.focus("#pad")
    page.keyboard.press("Backspace")
    page.mouse.move(box["x"] + 150, box["y"] + 200, steps=4)
    page.mouse.up()
    assert state(page)["strokes"] == ""


def test_sample_lifts_the_pen(page: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    page.focus("#pad")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    kept = state(page)["strokes"]
    page.click('[data-sample="4"]')
    page.wait_for_load_state("networkidle")
    page.focus("#pad")
    # The ring of the pen is seen over the image, and moves there.
    changes(page, "#pad", lambda: page.keyboard.press("ArrowDown"))
    assert (state(page)["input"], state(page)["strokes"]) == (4, kept)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert state(page)["input"] == "drawing"
    assert len(state(page)["strokes"]) == 8


def test_touch_draws(browser: Any, url: str) -> None:
    context = browser.new_context(base_url=url, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto("/#panel=%22draw%22")
    page.wait_for_selector(READY)
    page.locator("#pad").tap()
    page.wait_for_function("() => location.hash.includes('strokes')")
    assert page.evaluate("getComputedStyle(document.querySelector('#pad')).touchAction") == "none"
    context.close()


def test_second_finger_is_ignored(browser: Any, url: str) -> None:
    context = browser.new_context(base_url=url, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto("/#panel=%22draw%22&input=0")
    page.wait_for_selector(READY)
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    touch = context.new_cdp_session(page)
    one = [{"x": box["x"] + 50 + 5 * step, "y": box["y"] + 50, "id": 0} for step in range(8)]
    palm = {"x": box["x"] + 200, "y": box["y"] + 200, "id": 1}
    for kind, points in [
        ("touchStart", [one[0]]),
        ("touchStart", [one[0], palm]),
        *(("touchMove", [place, palm]) for place in one[1:]),
        ("touchEnd", []),
    ]:
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    strokes = state(page)["strokes"].split(".")
    assert len(strokes) == 1
    # All of it at the height at which it began.
    assert {strokes[0][at : at + 2] for at in range(2, len(strokes[0]), 4)} == {strokes[0][2:4]}
    context.close()
