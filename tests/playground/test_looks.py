from __future__ import annotations

from typing import Any

import pytest

from .pages import SEVEN, opened, stroke, until

PHONE = {"width": 390, "height": 844}
WIDTHS = (375, 340)
# Whether any part of the scene lies under the middle or a corner of a box on the page.
COVERS = """names => names.flatMap((name) => {
  const { left, right, top, bottom } = name.getBoundingClientRect();
  const places = [[(left + right) / 2, (top + bottom) / 2], [left, top], [right, top], [left, bottom], [right, bottom]];
  return places.flatMap(([x, y]) => document.elementsFromPoint(x, y)).filter((node) => node.closest('.part, .handle'));
}).length"""
# How much room the words of a select need, and how much there is beside its arrow.
ROOM = """select => {
  const style = getComputedStyle(select);
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = style.font;
  const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16;
  return room - Math.max(...[...select.options].map(({ text }) => pen.measureText(text).width));
}"""

# The contrast of words with what is painted below them, from 1 to 21 (WCAG 2).
CONTRAST = """word => {
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const levels = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = (colour) => levels(colour).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const svg = word instanceof SVGElement;
  const disc = word.parentElement.querySelector(':scope > .disc');
  let below = disc && getComputedStyle(disc).fill;
  for (let node = word; !below; node = node.parentElement) {
    const { backgroundColor } = getComputedStyle(node);
    if (levels(backgroundColor)[3] === 255) below = backgroundColor;
  }
  const [dark, bright] = [light(getComputedStyle(word)[svg ? 'fill' : 'color']), light(below)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}"""


def heights(page: Any, selector: str) -> list[float]:
    return page.locator(selector).evaluate_all("nodes => nodes.map((node) => node.getBoundingClientRect().height)")


def test_the_classes_of_two_digits_are_as_low_as_those_of_one(page: Any) -> None:
    opened(page, "input=3")
    low = heights(page, ".class:not(.head)")
    page.click("#two")
    page.wait_for_selector(".class.pair")
    assert heights(page, ".class:not(.head)") == low
    assert max(low) < 60


@pytest.mark.parametrize("width", [1180, *WIDTHS])
@pytest.mark.parametrize("scene", ["both", "upside-down"])
def test_names_of_wholes_lie_beside_the_parts(page: Any, width: int, scene: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f'panel="toy"&toy.scene="{scene}"')
    until(page, lambda: page.locator(".whole-name").count() == 2)
    page.locator(".stage").scroll_into_view_if_needed()
    names = page.locator(".whole-name")
    assert sorted(names.all_text_contents()) == ["boat", "house"]
    assert names.evaluate_all(COVERS) == 0
    inside = page.locator(".stage").bounding_box()
    for name in names.all():
        box = name.bounding_box()
        assert inside["x"] <= box["x"]
        assert box["x"] + box["width"] <= inside["x"] + inside["width"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("panel", ["toy", "clusters"])
def test_a_phone_has_room_for_every_choice(page: Any, width: int, panel: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f'panel="{panel}"')
    for select in page.locator(".choices select").all():
        assert select.evaluate(ROOM) >= 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_buttons_for_parts_stand_in_one_line(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, 'panel="toy"')
    page.wait_for_selector("[data-whole]")
    buttons = page.locator(".picked button")
    assert buttons.count() == 3
    assert buttons.evaluate_all("all => new Set(all.map((one) => one.getBoundingClientRect().top)).size") == 1
    assert max(heights(page, ".picked button")) < 40


def test_k_means_leaves_no_room_for_a_temperature(page: Any) -> None:
    opened(page, 'panel="clusters"&clusters.routing="kmeans"')
    page.wait_for_selector(".plot-pair .plot")
    plot, room = page.locator(".plot-pair .plot:visible"), page.locator(".plot-pair")
    assert plot.count() == 1
    assert plot.bounding_box()["width"] == pytest.approx(room.bounding_box()["width"], abs=2)
    page.locator(".panel-clusters [aria-label=Routing]").select_option("em")
    until(page, lambda: page.locator(".plot-pair .plot:visible").count() == 2)
    assert plot.first.bounding_box()["width"] < room.bounding_box()["width"] / 2


@pytest.mark.parametrize("panel", ["toy", "clusters", "pose", "routing"])
def test_the_words_of_all_plots_are_as_large(page: Any, panel: str) -> None:
    opened(page, f'panel="{panel}"')
    page.wait_for_selector(".plot text")
    wide = heights(page, ".plot text")
    assert max(wide) - min(wide) < 0.6
    # And when the window becomes narrow, without anything else being done.
    page.set_viewport_size({"width": 375, "height": 900})
    page.wait_for_timeout(400)
    narrow = heights(page, ".plot text")
    assert max(narrow + wide) - min(narrow + wide) < 0.6


def test_the_axis_of_the_entropy_fits_what_is_shown(page: Any) -> None:
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector("#way-a .curves .plot")
    low, middle, high = (
        float(text) for text in page.locator("#way-a .curves .plot").first.locator(".tick").all_text_contents()
    )
    assert 0.9 < low < middle < high <= 1


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("link", "words", "least"),
    [
        ("draw.two=true&input=[4,8]", "#hint, .red, .green, .class .number, .head span, figcaption", 4.5),
        ('panel="pose"', ".says b, .plot-name, .legend span, .rows span, .slider label", 4.5),
        ('panel="routing"&routing.b="em"', ".trained, .caption, .map b, .map small, #count", 4.5),
        ('panel="toy"', ".whole-name, .scroll small, .scroll th, .keys", 4.5),
        ('panel="clusters"&clusters.clusters=8', ".meter span, .keys, .slide output", 4.5),
        # Large and bold, each on a disc of its own colour.
        ('panel="clusters"&clusters.clusters=8', ".field .centre", 3),
    ],
)
def test_words_can_be_read(page: Any, theme: str, link: str, words: str, least: float) -> None:
    opened(page, f'{link}&theme="{theme}"')
    for selector in words.split(", "):
        page.wait_for_selector(selector)
        contrast = [round(word.evaluate(CONTRAST), 2) for word in page.locator(selector).all()]
        assert min(contrast) >= least, selector


def test_an_empty_page_is_no_digit(page: Any) -> None:
    opened(page, 'input="drawing"')
    page.wait_for_function("() => document.querySelector('#verdict').textContent === 'nothing yet'")
    assert page.locator(".class.first").count() == 0
    assert page.locator(".seen figure:visible").count() == 1
    stroke(page, *SEVEN)
    page.wait_for_selector(".class.first")
    assert page.locator(".seen figure:visible").count() == 2


def test_a_phone_shows_what_one_changes_beside_what_changes(page: Any) -> None:
    page.set_viewport_size(PHONE)
    tops = """nodes => nodes.map((node) => node.getBoundingClientRect().top)"""

    def apart(first: str, last: str) -> float:
        low, high = (page.locator(selector).last.evaluate_all(tops)[0] for selector in (first, last))
        return high - low

    opened(page, "input=3")
    assert 0 < apart("#pad", ".class") < PHONE["height"] < apart("#pad", ".strip")
    opened(page, 'panel="pose"&input=3')
    page.wait_for_selector("#dim-15")
    assert 0 < apart("#drawn", "#dim-15") < PHONE["height"] < apart("#drawn", ".strip")
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector("#way-a .map")
    assert 0 < apart(".dots", "#next") < 0.6 * PHONE["height"]


def test_a_phone_has_the_steps_at_hand_for_both_routers(page: Any) -> None:
    page.set_viewport_size(PHONE)
    opened(page, 'panel="routing"&routing.b="em"')
    page.wait_for_selector("#way-b .map")
    page.locator("#way-b .plane").evaluate("plane => plane.scrollIntoView({ block: 'center' })")
    box = page.locator("#back").bounding_box()
    assert 0 <= box["y"] < 100
    page.click("#back")
    assert page.locator("#count").inner_text() == "2 of 3"


def test_what_is_said_is_seen_wherever_one_is(page: Any) -> None:
    page.set_viewport_size(PHONE)
    opened(page, 'panel="routing"')
    page.wait_for_selector("#way-a .map")
    page.click("#share")
    page.wait_for_function("() => document.querySelector('#status').textContent.includes('this view')")
    box = page.locator("#status").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= PHONE["height"]


def test_the_rows_of_the_grid_are_numbered(page: Any) -> None:
    opened(page, 'panel="pose"&input=3')
    page.wait_for_selector(".rows span")
    assert page.locator(".rows span").all_inner_texts() == [str(n + 1) for n in range(16)]
    sheet, last = (page.locator(selector).bounding_box() for selector in ("#grid", ".rows span:last-child"))
    middle = last["y"] + last["height"] / 2
    assert middle == pytest.approx(sheet["y"] + sheet["height"] * 15.5 / 16, abs=3)
