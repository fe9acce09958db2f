from __future__ import annotations

from typing import Any

import pytest

from .pages import opened, state, until


def paste(page: Any, link: str) -> None:
    """Another address in a tab that is open: the page is not loaded anew."""
    page.evaluate("link => { location.hash = link; }", link)


def test_a_link_shows_the_same_view(page: Any) -> None:
    opened(page, 'panel="routing"&input=17')
    page.select_option("#router-b", "dynamic")
    page.wait_for_selector("#way-b .map")
    page.click("#back")
    page.click("#share")
    link = page.url.partition("#")[2]
    seen = page.locator("#panel").inner_text()
    opened(page, link)
    page.wait_for_selector("#way-b .map")
    assert page.locator("#count").inner_text() == "2 of 3"
    assert page.locator("#panel").inner_text() == seen


def test_the_back_button_and_typed_addresses_are_followed(page: Any) -> None:
    paste(page, "panel=%22routing%22&input=4")
    page.wait_for_selector("#way-a .map")
    page.go_back()
    page.wait_for_selector("#pad")


def test_what_was_about_to_be_written_does_not_write_over_an_address_that_came(page: Any) -> None:
    paste(page, "panel=%22routing%22&input=4")
    page.wait_for_selector("#way-a .map")
    # The panel writes to the address in the moment between the new address and the word of it.
    page.evaluate("""() => {
        location.hash = "panel=%22clusters%22";
        dispatchEvent(new Event("pagehide"));
    }""")
    page.wait_for_selector(".panel-clusters")


@pytest.mark.parametrize(
    "link",
    [
        'panel="draw"&broken={',
        'panel="nothing"&theme=7',
        'input=999999&strokes=5&draw.two="x"',
        'page="x"',
        "page=-7&input=12",
        "page=1e9",
        'panel="pose"&input=[1]&pose.off=["a"]',
        'panel="pose"&pose.move={"rotate":999,"right":1.5,"more":1}',
        'panel="pose"&pose.move=7',
        'panel="pose"&pose.along="x"',
        f'panel="pose"&pose.off={[999] * 16}',
        'panel="routing"&routing.at=99&routing.b="nobody"&routing.parent=-3',
        'panel="routing"&routing.b="em"&routing.iters=99',
        'panel="routing"&routing.b="em"&routing.iters="x"',
        'panel="toy"&toy.scene="random"&toy.seed="x"',
        'panel="toy"&toy.scene="random"&toy.seed=-1.5',
        'panel="toy"&toy.chosen=99&toy.third="x"&toy.votes=1',
        'panel="clusters"&clusters.clusters=99&clusters.iters=-1&clusters.seed=2.5&clusters.gain=1e9',
    ],
)
def test_a_link_that_was_cut_off_or_made_up_shows_what_it_can(page: Any, link: str) -> None:
    opened(page, link)
    # The page itself fails where the console has an error, as after an answer that is none.
    assert page.locator("#status").inner_text() == ""
    assert page.locator("#panel").inner_text() != ""


def test_what_is_out_of_range_becomes_the_nearest_that_is_not(page: Any) -> None:
    opened(page, 'panel="routing"&routing.b="em"&routing.iters=99')
    page.wait_for_selector("#way-b .map")
    assert page.locator("#iters").input_value() == "10"
    opened(page, 'panel="pose"&pose.move={"rotate":999,"down":-99}')
    page.wait_for_selector("#says b")
    assert [page.locator(f"#move-{name}").input_value() for name in ("rotate", "down")] == ["70", "-7"]


def test_settings_in_a_pasted_link_change_the_toy(page: Any) -> None:
    opened(page, 'panel="toy"')
    until(page, lambda: page.locator("[data-whole]").count() == 2)
    paste(page, state_of(page) + '&toy.routing="dynamic"')
    until(page, lambda: page.locator("[aria-label=Routing]").input_value() == "dynamic")
    paste(page, 'panel="toy"&toy.routing="dynamic"&toy.third=true')
    until(page, lambda: page.locator("[data-whole]").count() == 3)
    assert page.get_by_label("look for an upside-down house").is_checked()
    paste(page, state_of(page) + '&toy.votes="none"')
    until(page, lambda: page.locator(".vote").count() == 0)
    assert page.locator("[aria-label='Votes shown']").input_value() == "none"


def test_settings_in_a_pasted_link_change_the_clusters(page: Any) -> None:
    opened(page, 'panel="clusters"')
    until(page, lambda: page.locator(".field .disc").count() == 3)
    paste(page, state_of(page) + '&clusters.clusters=6&clusters.routing="kmeans"')
    until(page, lambda: page.locator(".field .disc").count() == 6)
    assert page.locator(".panel-clusters [aria-label=Routing]").input_value() == "kmeans"
    paste(page, state_of(page).replace("clusters.routing", "nothing"))
    until(page, lambda: page.locator(".panel-clusters [aria-label=Routing]").input_value() == "em")


def test_the_chosen_part_is_kept_in_the_address(page: Any) -> None:
    opened(page, 'panel="toy"&toy.scene="both"')
    page.wait_for_selector("[data-whole]")
    page.locator(".panel-toy tbody tr").nth(2).click()
    assert page.get_by_text("Chosen: triangle 3").is_visible()
    assert state(page)["toy.chosen"] == 2
    opened(page, state_of(page))
    until(page, lambda: page.get_by_text("Chosen: triangle 3").is_visible())
    assert page.locator(".part.is-chosen .tag").text_content() == "3"
    paste(page, state_of(page).replace("toy.chosen=2", "toy.chosen=1"))
    until(page, lambda: page.get_by_text("Chosen: rectangle 2").is_visible())


def state_of(page: Any) -> str:
    """The address behind the #, once it has been written."""
    state(page)
    return page.url.partition("#")[2]
