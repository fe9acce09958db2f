from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchcaps.playground.server import PANELS

from .pages import READY, SEVEN, changes, opened, pixels, stroke


def test_every_panel_has_its_tab_and_its_hint(page: Any) -> None:
    tabs = page.locator("#tabs [role=tab]")
    assert [tab.get_attribute("data-panel") for tab in tabs.all()] == list(PANELS)
    for tab in tabs.all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        # Two sentences: what to look for.
        assert len(re.findall(r"[.?](\s|$)", page.locator("#hint").inner_text())) == 2


def test_tabs_are_walked_by_keys(page: Any) -> None:
    page.locator("#tabs [role=tab]").first.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.panel") == list(PANELS)[-1]
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.panel") == next(iter(PANELS))


def test_the_theme_is_kept_in_the_address(page: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    dark = page.evaluate(background)
    assert dark != light
    opened(page, page.url.partition("#")[2])
    assert page.evaluate(background) == dark


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_is_wider_than_a_phone(page: Any, panel: str) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    opened(page, f'panel="{panel}"')
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_lengths_follow_while_drawing(page: Any, picture: Any) -> None:
    opened(page, "input=0")
    changes(page, ".seen canvas", lambda: stroke(page, *SEVEN))
    assert page.locator(".class:not(.head)").count() == 10
    assert json.loads(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('input') ?? 'null'")) is not None
    page.wait_for_load_state("networkidle")
    lengths = [float(text) for text in page.locator(".class .number").all_inner_texts()]
    assert all(0 <= length <= 1 for length in lengths)
    picture("draw")


def test_two_digits_are_red_and_green(page: Any, picture: Any) -> None:
    opened(page, "input=3")
    page.click("#two")
    page.click('[data-sample="4"]')
    page.click('[data-sample="8"]')
    page.wait_for_load_state("networkidle")
    names = [page.locator(f".seen .{colour}").inner_text() for colour in ("red", "green")]
    assert len(set(names)) == 2
    assert page.locator(".class.first.pair, .class.second.pair").count() == 2
    assert page.locator('.strip [aria-pressed="true"]').count() == 2
    picture("draw-two")


def test_a_slider_moves_the_reconstruction(page: Any, picture: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    assert page.locator(".dims input").count() == 16
    picture("pose")
    page.focus("#dim-2")
    changes(page, "#drawn canvas", lambda: [page.keyboard.press("ArrowRight") for _ in range(25)])
    before = pixels(page, "#drawn canvas")
    changes(page, "#drawn canvas", lambda: page.click("#reset-pose"))
    assert pixels(page, "#drawn canvas") != before


def test_a_click_into_the_grid_sets_the_slider(page: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    page.wait_for_selector("#grid[data-rows]")
    box = page.locator("#grid").bounding_box()
    # The eighth row, the last column.
    page.mouse.click(box["x"] + box["width"] * 0.99, box["y"] + box["height"] * 7.5 / 16)
    page.wait_for_function("() => document.querySelector('#dim-7').value === '0.25'")


def test_moving_the_picture_draws_both_curves(page: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    page.focus("#move-shear")
    changes(page, ".moved canvas", lambda: [page.keyboard.press("ArrowRight") for _ in range(12)])
    page.wait_for_selector(".slider.chosen label[for=move-shear]")
    page.wait_for_load_state("networkidle")
    assert page.locator(".pose.second .plot").count() == 2
    assert page.locator("#says").inner_text().count(" at ") == 2
    assert "shear" in page.locator(".pose.second").inner_text()


def test_routing_is_stepped_and_scrubbed_and_played(page: Any, picture: Any) -> None:
    opened(page, 'panel="routing"&input=5')
    count = page.locator("#count")
    page.wait_for_function("() => document.querySelector('#count').textContent === '3 of 3'")
    assert page.locator("#next").is_disabled()
    fills = "[...document.querySelectorAll('.dots circle')].map(dot => dot.getAttribute('fill')).join(';')"
    last = page.evaluate(fills)
    page.click("#back")
    assert count.inner_text() == "2 of 3"
    page.focus("#iteration")
    page.keyboard.press("Home")
    assert count.inner_text() == "1 of 3"
    # At first every child listens to every class alike.
    assert len(set(page.evaluate(fills).split(";"))) == 1
    page.click("#play")
    page.wait_for_function("() => document.querySelector('#count').textContent === '3 of 3'")
    assert page.evaluate(fills) == last
    assert page.locator(".dots circle").count() == page.locator("#way-a .plane g circle").count() == 144
    # Whoever steps has stopped playing.
    page.evaluate("['#play', '#next'].forEach((button) => document.querySelector(button).click())")
    assert page.locator("#play").get_attribute("aria-label") == "play"
    assert count.inner_text() == "2 of 3"
    page.wait_for_timeout(1200)
    assert count.inner_text() == "2 of 3"


def test_two_routers_stand_side_by_side(page: Any, picture: Any) -> None:
    opened(page, 'panel="routing"&input=5')
    page.select_option("#router-b", "em")
    page.wait_for_selector("#way-b .map")
    # What the network was not trained with answers at random, which would mislead without a word.
    assert page.locator("#way-a .trained").inner_text() == "Trained with this network."
    assert page.locator("#way-b .trained").inner_text().startswith("Not trained with this network")
    page.select_option("#iters", "6")
    page.wait_for_function("() => document.querySelector('#count').textContent === '6 of 6'")
    changed = page.locator('#way-b .map[data-label="4"]')
    changed.click()
    page.wait_for_selector('#way-a .map[data-label="4"][aria-pressed="true"]')
    page.select_option("#router-b", "dynamic")
    page.wait_for_function("() => document.querySelector('#way-b .trained').textContent.startsWith('Trained')")
    opened(page, 'panel="routing"&input=3&routing.b="kmeans"&routing.iters=5')
    picture("routing")


def test_a_drawing_is_taken_along_to_other_panels_and_in_links(page: Any) -> None:
    opened(page, "input=0")
    stroke(page, *SEVEN)
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => location.hash.includes('strokes')")
    page.wait_for_timeout(400)
    drawn = pixels(page, ".seen canvas")
    opened(page, page.url.partition("#")[2].replace("panel=%22draw%22", "") + '&panel="pose"')
    page.wait_for_function("() => document.querySelector('.pictures canvas').width === 28")
    assert pixels(page, ".pictures canvas") == drawn


def test_a_mistake_is_said_in_the_quiet_line(browser: Any, url: str) -> None:
    page = browser.new_page(base_url=url)
    page.goto("/")
    page.wait_for_selector(READY)
    page.route("**/api/draw/look", lambda route: route.fulfill(status=400, json={"error": "no such digit"}))
    page.click('[data-sample="5"]')
    page.wait_for_function("() => document.querySelector('#status').textContent === 'no such digit'")
    page.unroute("**/api/draw/look")
    page.click('[data-sample="6"]')
    page.wait_for_function("() => document.querySelector('#status').textContent === ''")
    page.close()
