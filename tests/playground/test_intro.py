from __future__ import annotations

import re
from typing import Any

import pytest

from torchcaps.playground.server import PANELS, STATIC

from .pages import opened, until

GLOSSARY = (STATIC / "lib" / "glossary.js").read_text()
TERMS = re.findall(r'^  (?:"([^"]+)"|(\w+)):', GLOSSARY.partition("GLOSSARY = {")[2].partition("};")[0], re.MULTILINE)
NAMES = {quoted or plain for quoted, plain in TERMS}


def test_every_marked_term_is_in_the_glossary() -> None:
    used: set[str] = set()
    for path in STATIC.rglob("*.js"):
        if path.name == "glossary.js":
            continue
        text = path.read_text()
        used |= {found.partition("|")[0] for found in re.findall(r"\[\[([^\]]+)\]\]", text)}
        used |= set(re.findall(r'\bterm\("([^"]+)"', text))
    assert used <= NAMES
    # Every explanation is used somewhere.
    assert used >= NAMES


def test_story_plays_through_its_chapters(page: Any, picture: Any) -> None:
    opened(page, "")
    title = page.locator(".chapter-title")
    until(page, lambda: title.inner_text() == "1. A capsule")
    assert page.get_by_role("button", name="Pause").is_visible()
    before = page.locator(".story-stage").inner_html()
    until(page, lambda: page.locator(".story-stage").inner_html() != before)
    titles = []
    for chapter in page.locator(".chapter").all():
        chapter.click()
        titles.append(title.inner_text().partition(". ")[2])
        assert page.locator(".story-stage > *").count() > 3
        assert page.locator(".chapter-text .term").count() >= 1
    assert titles == ["A capsule", "A pose", "A vote", "Agreement", "Coupling", "A digit"]
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Next chapter").is_disabled()
    opened(page, "intro.chapter=3")
    until(page, lambda: title.inner_text() == "4. Agreement")
    picture("intro")


def test_story_without_motion(browser: Any, url: str) -> None:
    context = browser.new_context(base_url=url, reduced_motion="reduce")
    page = context.new_page()
    page.goto("/")
    page.wait_for_selector(".story-stage > *")
    assert page.get_by_role("button", name="Play").is_visible()
    page.goto("/#panel=%22toy%22")
    page.wait_for_selector("[data-whole]")
    page.wait_for_timeout(900)
    assert page.locator(".stepper output").inner_text() == "iteration 1 / 8"
    context.close()


def test_terms_explain_themselves(page: Any) -> None:
    opened(page, "")
    word = page.locator("#hint .term").first
    word.hover()
    tooltip = page.locator("#tooltip")
    assert tooltip.is_visible()
    assert "vector" in tooltip.inner_text()
    described = word.get_attribute("aria-describedby")
    assert page.locator(f"#{described}").text_content() == tooltip.inner_text()
    page.keyboard.press("Escape")
    assert not tooltip.is_visible()
    word.focus()
    assert tooltip.is_visible()


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_explains_terms(page: Any, panel: str) -> None:
    opened(page, f'panel="{panel}"')
    assert page.locator("#hint .term").count() >= 1
    box = page.locator("#hint .term").last
    box.hover()
    tooltip = page.locator("#tooltip").bounding_box()
    assert tooltip["x"] >= 0
    assert tooltip["x"] + tooltip["width"] <= page.viewport_size["width"]


def test_tasks_are_checked_off_and_kept(page: Any) -> None:
    opened(page, "")
    assert page.locator(".task.done").count() == 0
    page.locator(".intro [data-task=picasso]").click()
    page.wait_for_selector("#tasks [data-task=picasso].done")
    assert page.locator("[aria-label=Scene]").input_value() == "picasso"
    opened(page, "")
    page.wait_for_selector(".intro [data-task=picasso].done")
    assert "1 of 10 done" in page.locator(".intro").inner_text()
    page.get_by_role("button", name="Reset tasks").click()
    assert page.locator(".task.done").count() == 0


def test_tasks_of_the_other_panels(page: Any) -> None:
    opened(page, 'panel="pose"&input=5')
    page.wait_for_selector("#dim-2")
    page.focus("#dim-2")
    for _ in range(22):
        page.keyboard.press("ArrowRight")
    page.wait_for_selector("[data-task=dimension].done")
    opened(page, 'panel="routing"&input=5&routing.iteration=0')
    page.wait_for_selector("#card-a .map")
    page.focus(".stepper input")
    page.keyboard.press("End")
    page.wait_for_selector("[data-task=step].done")
    opened(page, 'panel="clusters"')
    page.wait_for_selector(".field .disc")
    box = page.locator(".field").bounding_box()
    page.mouse.click(box["x"] + 0.97 * box["width"], box["y"] + 0.05 * box["height"])
    page.wait_for_selector("[data-task=outlier].done")


def test_blank_page_shows_no_lengths(page: Any) -> None:
    opened(page, 'panel="draw"&input="drawing"')
    page.wait_for_function("() => document.querySelector('#verdict').textContent === 'no drawing yet'")
    assert page.locator(".invitation").inner_text() == "Draw here"
    assert not any(text[0].isdigit() for text in page.locator(".class .number").all_inner_texts())
