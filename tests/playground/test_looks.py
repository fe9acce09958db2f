from __future__ import annotations

from typing import Any

import pytest

from .pages import opened, until

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
