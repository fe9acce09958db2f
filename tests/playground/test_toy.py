from __future__ import annotations

import re
from typing import Any, get_args

import httpx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchcaps.playground import toy
from torchcaps.playground.toy_geometry import decode_poses, to_pose, wholes_of
from torchcaps.playground.toy_routing import DEFAULT_ITERS, ToyRouting, route
from torchcaps.playground.toy_scenes import SceneName, make_scene

from .pages import slow_down, state, until

piece = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["triangle", "rectangle", "door", "window"]),
        "x": st.floats(-6, 6),
        "y": st.floats(-4, 4),
        "angle": st.floats(-360, 360),
        "size": st.floats(0.5, 2),
    }
)
bodies = st.fixed_dictionaries(
    {"parts": st.lists(piece, min_size=1, max_size=12)},
    optional={
        "routing": st.sampled_from(get_args(ToyRouting)),
        "iters": st.integers(1, 20),
        "upside_down": st.booleans(),
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies)
def test_valid_requests_give_finite_numbers(client: httpx.Client, body: dict[str, Any]) -> None:
    response = client.post("/api/toy/route", json=body)
    assert response.status_code == 200
    result = response.json()
    children, parents = len(body["parts"]), 3 if body.get("upside_down") else 2
    assert len(result["wholes"]) == parents
    assert len(result["iterations"]) == body.get("iters", DEFAULT_ITERS[body.get("routing", "em")])
    for step in result["iterations"]:
        for name in ("coupling", "logits", "agreement"):
            values = torch.tensor(step[name])
            assert values.shape == (children, parents)
            assert torch.isfinite(values).all()
        # The rest belongs to no whole.
        assert torch.tensor(step["coupling"]).sum(dim=-1).max() <= 1 + 2e-4
        assert all(0 <= activation <= 1 for activation in step["activations"])


PIECE = {"kind": "triangle", "x": 0, "y": 0, "angle": 0, "size": 1}
BEYOND = [
    {"kind": "circle"},
    {"x": 6.1},
    {"x": "left"},
    {"y": -5},
    {"angle": 361},
    {"size": 0.4},
    {"size": None},
    {"z": 1},
]
wrong = st.sampled_from(
    [
        {"parts": []},
        {"parts": [{}]},
        {"parts": 3},
        {"parts": [PIECE] * 13},
        *({"parts": [PIECE | change]} for change in BEYOND),
        {"routing": "magic"},
        {"iters": 0},
        {"iters": 21},
        {"upside_down": "perhaps"},
        {"more": 1},
    ]
)


@settings(deadline=None)
@given(body=bodies, change=wrong)
def test_invalid_requests(client: httpx.Client, body: dict[str, Any], change: dict[str, Any]) -> None:
    response = client.post("/api/toy/route", json=body | change)
    assert response.status_code == 422
    assert next(iter(change)) in response.json()["error"]


def test_parts_of_different_wholes_are_refused(client: httpx.Client) -> None:
    response = client.post("/api/toy/route", json={"parts": [PIECE, PIECE | {"kind": "nose"}]})
    assert response.status_code == 400
    assert "nose, triangle" in response.json()["error"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_non_finite_numbers_are_refused(client: httpx.Client, literal: str) -> None:
    body = f'{{"parts": [{{"kind": "triangle", "x": {literal}, "y": 0, "angle": 0, "size": 1}}]}}'
    response = client.post("/api/toy/route", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "parts.0.x" in response.json()["error"]


@pytest.mark.parametrize("name", get_args(SceneName))
def test_scene_round_trip(client: httpx.Client, name: SceneName) -> None:
    setting = client.post("/api/toy/scene", json={"name": name, "seed": 4}).json()
    assert setting["upside_down"] == (name == "upside-down")
    response = client.post("/api/toy/route", json=setting).json()
    found = make_scene(name, 4)
    wholes = wholes_of({part.kind for part in found.parts}, upside_down=found.upside_down)
    trace = route(found.parts, wholes, "em", 8)
    for r, step in enumerate(response["iterations"]):
        torch.testing.assert_close(torch.tensor(step["coupling"]), trace.coupling[r, 0].float(), atol=2e-3, rtol=0)
        torch.testing.assert_close(
            torch.tensor(step["activations"]), trace.activations[r, 0].float(), atol=2e-3, rtol=0
        )


def test_numbers_match_the_trace() -> None:
    found = make_scene("both")
    parts = toy.load_scene(toy.SceneRequest(name="both")).parts
    response = toy.route_parts(toy.ToyRequest(parts=parts, routing="dynamic", iters=3))
    trace = route(found.parts, ("house", "boat"), "dynamic", 3)
    # In dynamic routing what is added to the logits is the agreement of the iteration before.
    logits = [torch.tensor(step.logits) for step in response.iterations]
    agreement = [torch.tensor(step.agreement) for step in response.iterations]
    for r in range(2):
        torch.testing.assert_close(logits[r + 1], logits[r] + agreement[r], atol=3e-4, rtol=0)
    assert response.iterations[0].inverse_temp is None
    for step, poses in zip(response.iterations, decode_poses(trace.poses[:, 0]), strict=True):
        for shown, pose in zip(step.poses, poses, strict=True):
            assert shown.x == pytest.approx(to_pose(pose).x, abs=1e-3)


def activation(page: Any, whole: str, detector: str = "activation") -> float:
    return float(page.locator(f"[data-whole='{whole}'] .{detector}").inner_text())


def coupling(page: Any, row: int) -> list[float]:
    cells = page.locator(".coupling-table tbody tr").nth(row).locator("b.coupling")
    return [float(text) for text in cells.all_inner_texts()]


def open_toy(page: Any, scene: str, routing: str = "em") -> None:
    """Open a scene, at the end of its routing."""
    page.click("#tab-toy")
    page.wait_for_selector("[data-whole]")
    page.locator("[aria-label=Scene]").select_option(scene)
    # The address has the new scene before its numbers arrive.
    until(page, lambda: state(page).get("toy.scene") == scene)
    page.locator("[aria-label=Routing]").select_option(routing)
    page.wait_for_load_state("networkidle")
    page.locator(".panel-toy .stepper input").fill(str(DEFAULT_ITERS["em" if routing == "em" else "dynamic"] - 1))
    page.wait_for_timeout(200)


def centre(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def label_number(page: Any, word: str) -> float:
    """The number after a word in the label of the first part."""
    found = re.search(rf"{word} (-?[\d.]+)", page.locator(".part").first.get_attribute("aria-label"))
    assert found is not None
    return float(found[1])


def test_drag_a_part(page: Any) -> None:
    open_toy(page, "house")
    until(page, lambda: activation(page, "house") > 0.9)
    x, y = centre(page, ".part:nth-of-type(1) polygon")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y + 10, steps=4)
    page.mouse.move(x + 240, y + 20, steps=4)
    page.mouse.up()
    assert label_number(page, "x") == pytest.approx(2.9, abs=0.4)
    until(page, lambda: activation(page, "house") < 0.2)
    until(page, lambda: page.locator("[data-task=stray]").get_attribute("class") == "task done")


DRAG_GRID = [(-2.0, -1.0), (1.5, -1.5)]
FINE_GRID = [(-2, -1), (-1, -2), (-1, 1), (0, -2), (1, -1), (1, 2), (2, 0), (2, 1)]
# Scenes with a whole, and the number of the whole that the first four parts form.
WHOLE_OF = {"house": 0, "boat": 1, "both": 0, "stray": 0, "crowded": 0, "upside-down": 0, "face": 0}


@pytest.mark.parametrize("routing", get_args(ToyRouting))
@pytest.mark.parametrize("scene", ["both", *(pytest.param(name, marks=pytest.mark.slow) for name in WHOLE_OF)])
def test_hint_holds_on_the_page(page: Any, request: pytest.FixtureRequest, scene: str, routing: str) -> None:
    """Drag every part of a whole over a grid: it leaves, the others stay, and the boat beside it is untouched."""
    open_toy(page, scene, routing)
    whole, has_boat = WHOLE_OF[scene], scene in ("both", "crowded", "upside-down")
    is_slow = request.node.get_closest_marker("slow") is not None
    for n in range(4):
        for dx, dy in FINE_GRID if is_slow else DRAG_GRID:
            box = page.locator(".stage").bounding_box()
            # The plane is 12 by 8, and fits the height of the stage.
            unit = min(box["width"] / 12, box["height"] / 8)
            # Above the parts that cover it.
            page.locator(".coupling-table tbody tr").nth(n).click()
            start = centre_of_part(page, n)
            end = (start[0] + dx * unit, start[1] + dy * unit)
            # A part stops at the edge, where the mouse would not find it again.
            if not 0.1 * unit < end[1] - box["y"] < box["height"] - 0.1 * unit:
                continue
            drag(page, start, end)
            until(page, lambda n=n: hint_holds(page, n, whole, has_boat=has_boat))
            drag(page, end, start)
            until(page, lambda n=n: min(coupling(page, i)[whole] for i in range(4)) > 0.6)


def hint_holds(page: Any, n: int, whole: int, *, has_boat: bool) -> bool:
    """Whether a part of a whole has left it, the other parts are still there, and the boat is active."""
    shares = [coupling(page, i) for i in range(4)]
    stay = min(share[whole] for i, share in enumerate(shares) if i != n)
    return max(shares[n]) < 0.5 and stay > 0.55 and (not has_boat or activation(page, "boat") > 0.9)


def centre_of_part(page: Any, n: int) -> tuple[float, float]:
    """A place on the page where a part is on top."""
    box = page.locator(f"[data-part='{n}'] .tag").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=2)
    page.mouse.up()


def test_picasso_face(page: Any, picture: Any) -> None:
    open_toy(page, "face")
    until(page, lambda: activation(page, "face") > 0.9)
    assert activation(page, "face", "pooled") == 1
    open_toy(page, "picasso")
    until(page, lambda: activation(page, "face") < 0.1)
    assert activation(page, "face", "pooled") == 1
    picture("toy-picasso")


def test_two_houses(page: Any) -> None:
    open_toy(page, "two houses")
    until(page, lambda: max(coupling(page, 5)) < 0.5)
    assert min(coupling(page, n)[0] for n in range(4)) > 0.9
    assert page.locator(".whole-name").all_text_contents() == ["house"]


def test_scene_plays_once(page: Any) -> None:
    page.goto("about:blank")
    page.goto("/#panel=%22toy%22")
    text = page.locator(".panel-toy .stepper output")
    until(page, lambda: text.is_visible() and text.inner_text() == "iteration 1 / 8")
    until(page, lambda: text.inner_text() == "iteration 8 / 8")
    page.wait_for_timeout(1500)
    assert text.inner_text() == "iteration 8 / 8"


def test_votes_follow_a_drag(page: Any) -> None:
    open_toy(page, "house")
    slow_down(page, "toy/route", 0.2)
    x, y = centre(page, ".part:nth-of-type(1) polygon")
    page.mouse.move(x, y)
    page.mouse.down()
    seen = set()
    for step in range(30):
        page.mouse.move(x + 5 * step, y)
        page.wait_for_timeout(50)
        seen.add(page.locator(".vote polygon").first.get_attribute("transform"))
    page.mouse.up()
    # No response arrives before the next move, but several are shown.
    assert len(seen) > 3


def test_outdated_response_is_not_shown(page: Any) -> None:
    open_toy(page, "house")
    until(page, lambda: activation(page, "house") > 0.9)
    slow_down(page, "toy/route", 0.5)
    page.locator(".part").first.focus()
    page.keyboard.press("ArrowRight")
    # The same number of parts of the same kinds: only their poses differ.
    page.locator("[aria-label=Scene]").select_option("boat")
    seen = []

    def check() -> None:
        seen.append(page.locator(".vote polygon").first.get_attribute("transform"))

    def at_last() -> bool:
        check()
        return activation(page, "boat") > 0.9

    until(page, at_last)
    # The boat may have appeared after the last observation.
    check()
    # The house before the move, and the boat.
    assert len(set(seen)) == 2


def test_ring_turns_a_part(page: Any) -> None:
    open_toy(page, "house")
    x, y = centre(page, ".handle")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y + 60, steps=5)
    page.mouse.up()
    assert label_number(page, "turned by") > 30
    until(page, lambda: activation(page, "house") < 0.5)
    until(page, lambda: page.locator("[data-task=roof]").get_attribute("class") == "task done")


def test_touch_drags_and_scrolls(browser: Any, url: str) -> None:
    context = browser.new_context(base_url=url, has_touch=True, viewport={"width": 400, "height": 600})
    page = context.new_page()
    page.goto("/#panel=%22toy%22&toy.scene=%22house%22")
    page.wait_for_selector("[data-whole]")
    page.locator(".stage").scroll_into_view_if_needed()
    touch = context.new_cdp_session(page)

    def swipe(x: float, y: float, dx: float, dy: float) -> None:
        for kind, way in (("touchStart", 0.0), ("touchMove", 0.5), ("touchMove", 1.0), ("touchEnd", None)):
            points = [] if way is None else [{"x": x + way * dx, "y": y + way * dy}]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    before, top = label_number(page, "x"), page.evaluate("scrollY")
    swipe(*centre(page, ".part:nth-of-type(1) polygon"), 60, 20)
    until(page, lambda: label_number(page, "x") > before + 1)
    assert page.evaluate("scrollY") == top
    box = page.locator(".stage").bounding_box()
    swipe(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"], 0, -80)
    until(page, lambda: page.evaluate("scrollY") > top)
    context.close()


def test_keyboard(page: Any) -> None:
    open_toy(page, "both")
    part = page.locator(".part").nth(1)
    part.focus()
    assert "Selected: rectangle 2" in page.locator(".panel-toy h2").all_inner_texts()
    before = state(page)["toy.parts"].split("~")[1]
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowUp")
    for _ in range(4):
        page.keyboard.press("e")
    page.keyboard.press("+")
    after = state(page)["toy.parts"].split("~")[1]
    x, y, angle, size = (
        int(now) - int(then) for now, then in zip(after[1:].split("."), before[1:].split("."), strict=True)
    )
    assert (x, y, angle, size) == (50, -10, 120, 7)
    assert part.evaluate("node => node === document.activeElement")
    page.keyboard.press("Delete")
    until(page, lambda: page.locator(".part").count() == 7)
    page.get_by_label("Add a part").select_option("rectangle")
    assert page.locator(".part").count() == 8


def test_stepping(page: Any) -> None:
    open_toy(page, "stray")
    page.locator(".panel-toy .stepper input").fill("0")
    until(page, lambda: page.locator(".part").count() == 5 and coupling(page, 4) == [0.5, 0.5])
    for _ in range(3):
        page.get_by_role("button", name="One iteration on").click()
    assert page.locator(".panel-toy .stepper output").inner_text() == "iteration 4 / 8"
    page.locator(".panel-toy .stepper button").first.focus()
    page.keyboard.press("End")
    assert page.locator(".panel-toy .stepper output").inner_text() == "iteration 8 / 8"
    assert max(coupling(page, 4)) < 0.1
    page.keyboard.press("Home")
    page.get_by_role("button", name="Play").click()
    until(page, lambda: page.locator(".panel-toy .stepper output").inner_text() == "iteration 3 / 8")
    page.get_by_role("button", name="Pause").click()


def test_upside_down_house(page: Any, picture: Any) -> None:
    open_toy(page, "upside-down")
    until(page, lambda: activation(page, "upside-down house") < 0.05)
    assert min(activation(page, "house"), activation(page, "boat")) > 0.9
    picture("toy-upside-down")
    page.get_by_label("Upside-down house", exact=True).uncheck()
    until(page, lambda: page.locator("[data-whole]").count() == 2)


def test_dynamic_routing(page: Any) -> None:
    open_toy(page, "both")
    before = coupling(page, 1)
    page.locator("[aria-label=Routing]").select_option("dynamic")
    until(page, lambda: page.locator(".panel-toy .stepper output").inner_text() == "iteration 4 / 4")
    assert coupling(page, 1) != before
    assert coupling(page, 0)[0] > 0.8
    assert coupling(page, 7)[1] > 0.8


def test_link_restores_the_view(page: Any, browser: Any) -> None:
    open_toy(page, "both")
    page.locator(".panel-toy .stepper input").fill("1")
    page.locator("[aria-label='Votes shown']").select_option("selected")
    page.locator(".part").nth(2).focus()
    before = coupling(page, 3)
    page.keyboard.press("Shift+ArrowLeft")
    until(page, lambda: coupling(page, 3) != before)
    state(page)
    names = "parts => parts.map((part) => part.getAttribute('aria-label'))"
    labels = page.locator(".part").evaluate_all(names)
    table = page.locator(".coupling-table").inner_text()
    other = browser.new_page()
    other.goto(page.url)
    other.wait_for_selector("[data-whole]")
    until(other, lambda: other.locator(".panel-toy .stepper output").inner_text() == "iteration 2 / 8")
    assert other.locator(".part").evaluate_all(names) == labels
    assert other.locator("[aria-label='Votes shown']").input_value() == "selected"
    assert other.locator(".coupling-table").inner_text() == table
    other.close()


def test_broken_link(page: Any) -> None:
    page.goto("/#panel=%22toy%22&toy.parts=%22nonsense%22&toy.iteration=%22x%22&toy.scene=7")
    page.reload()
    page.wait_for_selector("[data-whole]")
    assert page.locator(".part").count() == 8


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone_layout(page: Any, theme: str) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    page.goto(f"/#theme=%22{theme}%22")
    open_toy(page, "upside-down")
    assert page.evaluate("document.documentElement.scrollWidth") <= 340
    x, y = centre(page, ".part:nth-of-type(1) polygon")
    before = page.locator(".part").first.get_attribute("aria-label")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y)
    page.mouse.up()
    assert page.locator(".part").first.get_attribute("aria-label") != before


def test_docs_screenshots(page: Any, picture: Any) -> None:
    open_toy(page, "both")
    until(page, lambda: coupling(page, 0)[0] > 0.9)
    picture("toy")
