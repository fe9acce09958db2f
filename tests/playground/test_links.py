from __future__ import annotations

from typing import Any

import pytest

from .pages import BACK, opened, state, until


def paste(page: Any, link: str) -> None:
    """Change the address of an open page without loading it again."""
    page.evaluate("link => { location.hash = link; }", link)


def test_link_restores_the_view(page: Any) -> None:
    opened(page, 'panel="routing"&input=17')
    page.select_option("#router-b", "dynamic")
    page.wait_for_selector("#card-b .map")
    until(page, lambda: page.locator(".stepper output").inner_text() == "iteration 3 / 3")
    page.click(BACK)
    page.click("#share")
    link = page.url.partition("#")[2]
    seen = page.locator("#panel").inner_text()
    opened(page, link)
    page.wait_for_selector("#card-b .map")
    assert page.locator(".stepper output").inner_text() == "iteration 2 / 3"
    assert page.locator("#panel").inner_text() == seen


def test_back_button(page: Any) -> None:
    paste(page, "panel=%22routing%22&input=4")
    page.wait_for_selector("#card-a .map")
    page.go_back()
    page.wait_for_selector(".story-stage")


def test_pending_write_keeps_a_new_address(page: Any) -> None:
    paste(page, "panel=%22routing%22&input=4")
    page.wait_for_selector("#card-a .map")
    # The panel writes the address between its change and the event of that change.
    page.evaluate("""() => {
        location.hash = "panel=%22clusters%22";
        dispatchEvent(new Event("pagehide"));
    }""")
    page.wait_for_selector(".panel-clusters")


LINKS = [
    'panel="draw"&broken={',
    'panel="nothing"&theme=7',
    'network="none"&panel="draw"',
    'panel="draw"&network="multimnist"&input=[1,999]',
    'panel="pose"&pose.transform={"rotate":999,"right":1.5,"more":1}',
    'panel="routing"&routing.iteration=99&routing.b="unknown"&routing.parent=-3',
    'panel="toy"&toy.scene="random"&toy.seed="x"',
    'panel="clusters"&clusters.clusters=99&clusters.iters=-1&clusters.seed=2.5&clusters.gain=1e9',
]
MORE_LINKS = [
    'panel="draw"&input=999999&strokes=5',
    "network=7&intro.chapter=99",
    'panel="draw"&input="upload"',
    'panel="draw"&page="x"',
    'panel="draw"&page=-7&input=12',
    'panel="draw"&page=1e9',
    'panel="pose"&input=[1]&pose.offsets=["a"]',
    'panel="pose"&pose.transform=7',
    'panel="pose"&pose.sweep="x"',
    f'panel="pose"&pose.offsets={[999] * 16}',
    'panel="routing"&routing.b="em"&routing.iters=99',
    'panel="routing"&routing.b="em"&routing.iters="x"',
    'panel="toy"&toy.scene="random"&toy.seed=-1.5',
    'panel="toy"&toy.selected=99&toy.upsideDown="x"&toy.votes=1',
]


@pytest.mark.parametrize("link", [*LINKS, *(pytest.param(link, marks=pytest.mark.slow) for link in MORE_LINKS)])
def test_invalid_links(page: Any, link: str) -> None:
    opened(page, link)
    # The fixture `page` fails on an error in the console.
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#panel").inner_text() != ""


def test_values_are_clamped(page: Any) -> None:
    opened(page, 'panel="routing"&routing.b="em"&routing.iters=99')
    page.wait_for_selector("#card-b .map")
    assert page.locator("#iters").input_value() == "10"
    opened(page, 'panel="pose"&pose.view="transform"&pose.transform={"rotate":999,"down":-99}')
    page.wait_for_selector("#predictions b")
    assert [page.locator(f"#transform-{name}").input_value() for name in ("rotate", "down")] == ["70", "-7"]


def test_pasted_link_changes_the_toy(page: Any) -> None:
    opened(page, 'panel="toy"')
    until(page, lambda: page.locator("[data-whole]").count() == 2)
    paste(page, state_of(page) + '&toy.routing="dynamic"')
    until(page, lambda: page.locator("[aria-label=Routing]").input_value() == "dynamic")
    paste(page, 'panel="toy"&toy.routing="dynamic"&toy.upsideDown=true')
    until(page, lambda: page.locator("[data-whole]").count() == 3)
    assert page.get_by_label("Upside-down house", exact=True).is_checked()
    paste(page, state_of(page) + '&toy.votes="none"')
    until(page, lambda: page.locator(".vote").count() == 0)
    assert page.locator("[aria-label='Votes shown']").input_value() == "none"


def test_pasted_link_changes_the_clusters(page: Any) -> None:
    opened(page, 'panel="clusters"')
    until(page, lambda: page.locator(".field .disc").count() == 3)
    paste(page, state_of(page) + '&clusters.clusters=6&clusters.routing="kmeans"')
    until(page, lambda: page.locator(".field .disc").count() == 6)
    assert page.locator(".panel-clusters [aria-label=Routing]").input_value() == "kmeans"
    paste(page, state_of(page).replace("clusters.routing", "nothing"))
    until(page, lambda: page.locator(".panel-clusters [aria-label=Routing]").input_value() == "em")


def test_selected_part_is_in_the_address(page: Any) -> None:
    opened(page, 'panel="toy"&toy.scene="both"')
    page.wait_for_selector("[data-whole]")
    page.locator(".coupling-table tbody tr").nth(2).click()
    assert page.get_by_text("Selected: door 3").is_visible()
    assert state(page)["toy.selected"] == 2
    opened(page, state_of(page))
    until(page, lambda: page.get_by_text("Selected: door 3").is_visible())
    assert page.locator(".part.is-selected .tag").text_content() == "3"
    paste(page, state_of(page).replace("toy.selected=2", "toy.selected=1"))
    until(page, lambda: page.get_by_text("Selected: rectangle 2").is_visible())


def state_of(page: Any) -> str:
    """The part of the address after the #, after it has been written."""
    state(page)
    return page.url.partition("#")[2]
