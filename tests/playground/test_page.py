from __future__ import annotations

from typing import Any

import pytest

from torchcaps.playground.server import PANELS


def test_every_panel_has_its_tab_and_its_hint(page: Any) -> None:
    tabs = page.locator("#tabs [role=tab]")
    assert [tab.get_attribute("data-panel") for tab in tabs.all()] == list(PANELS)
    for tab in tabs.all():
        tab.click()
        assert tab.get_attribute("aria-selected") == "true"
        hint = page.locator("#hint").inner_text()
        assert hint.count(".") + hint.count("?") >= 2


def test_tabs_are_walked_by_keys(page: Any) -> None:
    page.locator("#tabs [role=tab]").first.focus()
    page.keyboard.press("ArrowLeft")
    last = list(PANELS)[-1]
    assert page.evaluate("document.activeElement.dataset.panel") == last
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.panel") == next(iter(PANELS))


def test_the_theme_is_kept_in_the_address(page: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.click("#theme")
    dark = page.evaluate(background)
    assert dark != light
    page.goto("about:blank")
    page.go_back()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.evaluate(background) == dark


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_is_wider_than_a_phone(page: Any, panel: str) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    page.click(f"#tab-{panel}")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_a_mistake_is_said_in_the_quiet_line(page: Any) -> None:
    page.evaluate("history.replaceState(null, '', '#panel=%22draw%22&broken=%7B')")
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("#status").inner_text() == ""
