from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchcaps.playground.server import PANELS

from .pages import BACK, FORWARD, READY, SEVEN, changes, opened, pixels, stroke, until


def test_tabs_and_hints(page: Any) -> None:
    tabs = page.locator("#tabs [role=tab]")
    assert [tab.get_attribute("data-panel") for tab in tabs.all()] == list(PANELS)
    for tab in tabs.all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        # Two sentences: what the panel shows.
        assert len(re.findall(r"[.?](\s|$)", page.locator("#hint").inner_text())) == 2


def test_tabs_by_keyboard(page: Any) -> None:
    page.locator("#tabs [role=tab]").first.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.panel") == list(PANELS)[-1]
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.panel") == next(iter(PANELS))


def test_theme(page: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    dark = page.evaluate(background)
    assert dark != light
    opened(page, page.url.partition("#")[2])
    assert page.evaluate(background) == dark


@pytest.mark.parametrize("panel", PANELS)
def test_panels_fit_a_phone(page: Any, panel: str) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    opened(page, f'panel="{panel}"')
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_drawing_updates_the_lengths(page: Any, picture: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    changes(page, "#relevance", lambda: stroke(page, *SEVEN))
    assert page.locator(".class:not(.head)").count() == 10
    assert json.loads(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('input') ?? 'null'")) is not None
    page.wait_for_load_state("networkidle")
    lengths = [float(text) for text in page.locator(".class .number").all_inner_texts()]
    assert all(0 <= length <= 1 for length in lengths)
    picture("draw")


def test_pose_slider(page: Any, picture: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    assert page.locator(".dims input").count() == 16
    picture("pose")
    page.focus("#dim-2")
    changes(page, "#drawn canvas", lambda: [page.keyboard.press("ArrowRight") for _ in range(25)])
    before = pixels(page, "#drawn canvas")
    changes(page, "#drawn canvas", lambda: page.click("#reset-pose"))
    assert pixels(page, "#drawn canvas") != before


def test_click_into_the_grid(page: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    page.wait_for_selector("#grid[data-rows]")
    box = page.locator("#grid").bounding_box()
    # The eighth row, the last column.
    page.mouse.click(box["x"] + box["width"] * 0.99, box["y"] + box["height"] * 7.5 / 16)
    page.wait_for_function("() => document.querySelector('#dim-7').value === '0.25'")


def test_transform_curves(page: Any) -> None:
    opened(page, 'panel="pose"&pose.view="transform"&input=5')
    page.focus("#transform-shear")
    changes(page, ".transformed canvas", lambda: [page.keyboard.press("ArrowRight") for _ in range(12)])
    page.wait_for_selector(".slider.selected label[for=transform-shear]")
    page.wait_for_load_state("networkidle")
    assert page.locator(".pose.second .plot").count() == 2
    assert page.locator("#predictions").inner_text().count(" at ") == 2
    assert "shear" in page.locator(".pose.second").inner_text()


def test_routing_stepper(page: Any, picture: Any) -> None:
    page.goto("about:blank")
    page.goto('/#panel="routing"&input=5')
    count = page.locator(".stepper output")
    # It opens on the first iteration, and plays once.
    until(page, lambda: count.is_visible() and count.inner_text() == "iteration 1 / 3")
    page.wait_for_function("() => document.querySelector('.stepper output').textContent === 'iteration 3 / 3'")
    assert page.locator(FORWARD).is_disabled()
    fills = "[...document.querySelectorAll('.dots circle')].map(dot => dot.getAttribute('fill')).join(';')"
    last = page.evaluate(fills)
    page.click(BACK)
    assert count.inner_text() == "iteration 2 / 3"
    page.focus(".stepper input")
    page.keyboard.press("Home")
    assert count.inner_text() == "iteration 1 / 3"
    # The first coupling is uniform.
    assert len(set(page.evaluate(fills).split(";"))) == 1
    page.click(".stepper .primary")
    page.wait_for_function("() => document.querySelector('.stepper output').textContent === 'iteration 3 / 3'")
    assert page.evaluate(fills) == last
    assert page.locator(".dots circle").count() == page.locator("#card-a .plane g circle").count() == 144
    # A step stops playing.
    page.evaluate(
        "buttons => buttons.forEach((button) => document.querySelector(button).click())", [".stepper .primary", FORWARD]
    )
    assert page.locator(".stepper .primary").get_attribute("aria-label") == "Play"
    assert count.inner_text() == "iteration 2 / 3"
    page.wait_for_timeout(1200)
    assert count.inner_text() == "iteration 2 / 3"


def test_two_routers(page: Any, picture: Any) -> None:
    opened(page, 'panel="routing"&input=5')
    page.select_option("#router-b", "em")
    page.wait_for_selector("#card-b .map")
    # The prediction of an untrained router is random, and the card is marked so.
    assert page.locator("#card-a .training").inner_text() == "Trained with this router."
    assert page.locator("#card-b .training").inner_text().startswith("Not trained")
    page.select_option("#iters", "6")
    page.wait_for_function("() => document.querySelector('.stepper output').textContent === 'iteration 6 / 6'")
    changed = page.locator('#card-b .map[data-label="4"]')
    changed.click()
    page.wait_for_selector('#card-a .map[data-label="4"][aria-pressed="true"]')
    page.select_option("#router-b", "dynamic")
    page.wait_for_function("() => document.querySelector('#card-b .training').textContent.startsWith('Trained')")
    opened(page, 'panel="routing"&input=3&routing.b="kmeans"&routing.iters=5')
    picture("routing")


def test_drawing_is_shared_by_panels_and_links(page: Any) -> None:
    opened(page, 'panel="draw"&input=0')
    stroke(page, *SEVEN)
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => location.hash.includes('strokes')")
    page.wait_for_timeout(400)
    drawn = pixels(page, ".summary canvas")
    opened(page, page.url.partition("#")[2].replace("panel=%22draw%22", "panel=%22pose%22"))
    page.wait_for_function("() => document.querySelector('.pictures canvas').width === 28")
    assert pixels(page, ".pictures canvas") == drawn


def test_error_in_the_status_line(browser: Any, url: str) -> None:
    page = browser.new_page(base_url=url)
    page.goto("/#panel=%22draw%22")
    page.wait_for_selector(READY)
    page.route("**/api/draw/predict", lambda route: route.fulfill(status=400, json={"error": "no such digit"}))
    page.click('[data-sample="5"]')
    page.wait_for_function("() => document.querySelector('#status').textContent === 'no such digit'")
    page.unroute("**/api/draw/predict")
    page.click('[data-sample="6"]')
    page.wait_for_function("() => document.querySelector('#status').textContent === ''")
    page.close()


@pytest.mark.parametrize("action", ["#tab-pose", "#tab-routing"])
def test_failed_samples_are_requested_again(browser: Any, url: str, action: str) -> None:
    page = browser.new_page(base_url=url)
    failed: list[str] = []

    def refuse(route: Any) -> None:
        failed.append(route.request.url)
        route.fulfill(status=503, json={"error": "too many requests"})

    page.route("**/api/draw/samples", refuse)
    page.goto("/#panel=%22draw%22")
    page.wait_for_selector(READY)
    page.wait_for_load_state("networkidle")
    assert failed
    assert page.locator(".strip .tile").count() == 0
    page.unroute("**/api/draw/samples")
    page.click(action)
    page.wait_for_selector(".strip .tile")
    page.close()
