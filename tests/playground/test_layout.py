from __future__ import annotations

from typing import Any

import pytest

from .pages import BACK, FILL, FORWARD, SEVEN, opened, slow_down, stroke, until

PHONE = {"width": 390, "height": 844}
WIDTHS = (375, 340)
# Number of parts of the scene below the middle or a corner of each name.
COVERS = """names => names.flatMap((name) => {
  const { left, right, top, bottom } = name.getBoundingClientRect();
  const places = [[(left + right) / 2, (top + bottom) / 2], [left, top], [right, top], [left, bottom], [right, bottom]];
  return places.flatMap(([x, y]) => document.elementsFromPoint(x, y)).filter((node) => node.closest('.part, .handle'));
}).length"""
# Width of a select beside its arrow minus the width of its longest text.
ROOM = """select => {
  const style = getComputedStyle(select);
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = style.font;
  const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 16;
  return room - Math.max(...[...select.options].map(({ text }) => pen.measureText(text).width));
}"""

# Contrast of each text and its background, from 1 to 21 (WCAG 2).
CONTRAST = """selector => [...document.querySelectorAll(selector)].map((word) => {
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
})"""


def heights(page: Any, selector: str) -> list[float]:
    return page.locator(selector).evaluate_all("nodes => nodes.map((node) => node.getBoundingClientRect().height)")


def test_class_rows_keep_their_height(page: Any) -> None:
    opened(page, 'panel="draw"&input=3')
    single = heights(page, ".class:not(.head)")
    page.click("#two")
    page.wait_for_selector(".class.pair.first")
    pair = heights(page, ".class:not(.head)")
    # The rows of predicted classes are as high as the others; those of a network with a poor decoder are lower.
    assert len(set(single)) == len(set(pair)) == 1
    assert max(single) <= max(pair) < 60


@pytest.mark.parametrize("width", [1180, *WIDTHS])
@pytest.mark.parametrize("scene", ["both", "upside-down"])
def test_names_of_wholes_cover_nothing(page: Any, width: int, scene: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f'panel="toy"&toy.scene="{scene}"&toy.iteration=7')
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
def test_selects_fit_a_phone(page: Any, width: int, panel: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f'panel="{panel}"')
    for select in page.locator(".choices select").all():
        assert select.evaluate(ROOM) >= 0


@pytest.mark.parametrize("panel", ["intro", "toy", "draw", "pose", "routing", "clusters"])
def test_panels_fit_a_small_laptop(page: Any, panel: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    opened(page, f'panel="{panel}"&input=3')
    if panel == "routing":
        page.wait_for_selector("#effect:not(.pending)", timeout=120_000)
    until(page, lambda: page.evaluate("document.documentElement.scrollHeight") <= 800)


def test_effect_of_routing_moves_nothing(page: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    opened(page, 'panel="draw"&input=3')
    slow_down(page, "routing/effect", 1)
    page.click("#tab-routing")
    page.wait_for_selector("#effect.pending")
    before = page.locator(".controls").bounding_box()
    page.wait_for_selector("#effect:not(.pending)", timeout=120_000)
    assert page.locator(".controls").bounding_box() == before


def test_kmeans_has_no_temperature_plot(page: Any) -> None:
    opened(page, 'panel="clusters"&clusters.routing="kmeans"')
    page.wait_for_selector(".plot-pair .plot")
    plot, room = page.locator(".plot-pair .plot:visible"), page.locator(".plot-pair")
    assert plot.count() == 1
    whole = pytest.approx(room.bounding_box()["width"], abs=2)
    # A plot that is drawn again has no box for a moment.
    until(page, lambda: (box := plot.bounding_box()) is not None and box["width"] == whole)
    page.locator(".panel-clusters [aria-label=Routing]").select_option("em")
    until(page, lambda: page.locator(".plot-pair .plot:visible").count() == 2)
    half = room.bounding_box()["width"] / 2
    until(page, lambda: (box := plot.first.bounding_box()) is not None and box["width"] < half)


@pytest.mark.parametrize("panel", ["toy", "clusters", "pose", "routing"])
def test_plot_text_size(page: Any, panel: str) -> None:
    opened(page, f'panel="{panel}"&pose.view="transform"')
    page.wait_for_selector(".plot text")
    until(page, lambda: same_size(heights(page, ".plot text")))
    wide = heights(page, ".plot text")
    # Also after the window becomes narrow.
    page.set_viewport_size({"width": 375, "height": 900})
    until(page, lambda: same_size(heights(page, ".plot text") + wide))


def same_size(values: list[float]) -> bool:
    return max(values) - min(values) < 0.6


def test_scales_are_honest(page: Any) -> None:
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector("#card-a .curves .plot")
    ticks = page.locator("#card-a .curves .plot").first.locator(".tick").all_text_contents()
    assert [float(text) for text in ticks] == [0, 0.5, 1]
    legend = page.locator(".scale-legend").inner_text()
    assert all(number in legend for number in ("0.5", "1 (uniform)", "2"))


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("link", "words", "least"),
    [
        ('panel="draw"&network="multimnist"', "#hint, .red, .green, .class .number, .head span, figcaption", 4.5),
        ('panel="pose"', ".rows span, .slider label, .term, .task", 4.5),
        ('panel="pose"&pose.view="transform"', ".predictions b, .plot-name, .legend span", 4.5),
        ('panel="routing"&routing.b="em"', ".training, .caption, .map b, .map small, .step-text", 4.5),
        ('panel="toy"&toy.iteration=7', ".whole-name, .lesson, .scroll th, .keys", 4.5),
        ("", ".chapter-text, .task-group h3, .task", 4.5),
        ('panel="clusters"&clusters.clusters=8', ".meter span, .keys, .slider-row output", 4.5),
        # Large and bold, each on a disc of its own colour.
        ('panel="clusters"&clusters.clusters=8', ".field .centre", 3),
    ],
)
def test_contrast(page: Any, theme: str, link: str, words: str, least: float) -> None:
    opened(page, f'{link}&theme="{theme}"')
    for selector in words.split(", "):
        page.wait_for_selector(selector)
        # In one step: while a routing plays, its texts are drawn again.
        contrast = page.evaluate(CONTRAST, selector)
        assert min(contrast) >= least, selector


def test_empty_drawing_has_no_prediction(page: Any) -> None:
    opened(page, 'panel="draw"&input="drawing"')
    page.wait_for_function("() => document.querySelector('#verdict').textContent === 'no drawing yet'")
    assert page.locator(".class.first").count() == 0
    assert page.locator(".summary figure:visible").count() == 1
    stroke(page, *SEVEN)
    page.wait_for_selector(".class.first")
    # What the network sees, its reconstruction, and the pixels that the prediction rests on.
    page.wait_for_function("() => document.querySelectorAll('.summary figure:not([hidden])').length === 3")
    assert page.locator(".summary figure:visible").count() == 3


def test_phone_shows_controls_beside_results(page: Any) -> None:
    page.set_viewport_size(PHONE)
    tops = """nodes => nodes.map((node) => node.getBoundingClientRect().top)"""

    def apart(first: str, last: str) -> float:
        low, high = (page.locator(selector).last.evaluate_all(tops)[0] for selector in (first, last))
        return high - low

    opened(page, 'panel="draw"&input=3')
    assert 0 < apart("#pad", ".class") < PHONE["height"] < apart("#pad", ".strip")
    opened(page, 'panel="pose"&input=3')
    page.wait_for_selector("#dim-15")
    assert 0 < apart("#drawn", "#dim-15") < PHONE["height"] < apart("#drawn", ".strip")
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector("#card-a .map")
    assert 0 < apart(".dots", FORWARD) < 0.9 * PHONE["height"]


def test_phone_keeps_the_stepper_visible(page: Any) -> None:
    page.set_viewport_size(PHONE)
    opened(page, 'panel="routing"&routing.b="em"&routing.iteration=2')
    page.wait_for_selector("#card-b .map")
    page.locator("#card-b .plane").evaluate("plane => plane.scrollIntoView({ block: 'center' })")
    box = page.locator(BACK).bounding_box()
    assert 0 <= box["y"] < 100
    page.click(BACK)
    assert page.locator(".stepper output").inner_text() == "iteration 2 / 3"


def test_status_is_visible_when_scrolled(page: Any) -> None:
    page.set_viewport_size(PHONE)
    opened(page, 'panel="routing"')
    page.wait_for_selector("#card-a .map")
    page.click("#share")
    page.wait_for_function("() => document.querySelector('#status').textContent.includes('this view')")
    box = page.locator("#status").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= PHONE["height"]


def test_grid_rows_are_numbered(page: Any) -> None:
    opened(page, 'panel="pose"&input=3')
    page.wait_for_selector(".rows span")
    assert page.locator(".rows span").all_inner_texts() == [str(n + 1) for n in range(16)]
    grid, last = (page.locator(selector).bounding_box() for selector in ("#grid", ".rows span:last-child"))
    middle = last["y"] + last["height"] / 2
    assert middle == pytest.approx(grid["y"] + grid["height"] * 15.5 / 16, abs=3)


# What the user acts on and what it changes, in each panel.
MAIN = {
    "": ".story-stage, .chapters, .task",
    'panel="toy"&toy.iteration=7': ".stage, .stepper, [data-whole], .coupling-table, .selected-part",
    'panel="draw"': "#pad, .class:last-child, .strip",
    'panel="pose"': "#drawn, #dim-15, #grid, .strip",
    'panel="pose"&pose.view="transform"': "#transform-shear, .plot, .strip",
    'panel="routing"': ".dots, .stepper, .maps, .plane, .curves, .strip",
    'panel="routing"&routing.b="em"': ".dots, .stepper, #card-b .maps, #card-b .plane",
    'panel="clusters"': ".field, .stepper, .options, .meters",
}


@pytest.mark.parametrize("link", MAIN)
def test_main_interaction_needs_no_scrolling(page: Any, link: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    opened(page, link)
    for selector in MAIN[link].split(", "):
        page.wait_for_selector(selector)
        bottoms = page.locator(selector).evaluate_all("all => all.map((one) => one.getBoundingClientRect().bottom)")
        assert max(bottoms) <= 800, selector
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_receptive_field_on_hover(page: Any) -> None:
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector(".dots circle")
    assert page.locator(".field-box").get_attribute("visibility") == "hidden"
    page.locator(".dots .cell").first.hover(force=True)
    assert page.locator(".field-box").get_attribute("visibility") == "visible"
    first = page.locator(".field-text").inner_text()
    assert "row 1, column 1" in first
    page.locator(".dots").focus()
    page.keyboard.press("ArrowRight")
    assert "row 1, column 2" in page.locator(".field-text").inner_text()


def test_relevance_colours_the_places(page: Any) -> None:
    opened(page, 'panel="routing"&input=3')
    page.wait_for_selector(".dots circle")
    cells = page.locator(".dots .cell")
    assert {cell.evaluate(FILL)[0] for cell in cells.all()} == {0}
    page.click("[data-mode=relevance]")
    strengths = [cell.evaluate(FILL)[0] for cell in cells.all()]
    assert max(strengths) == pytest.approx(0.75, abs=0.01)
    assert min(strengths) >= 0
    assert page.locator(".dots circle:visible").count() == 0
