from __future__ import annotations

import base64
from typing import Any, get_args

import httpx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchcaps.ops.em import inverse_temps
from torchcaps.playground import clusters
from torchcaps.playground.cluster_points import ClusterOptions, PresetName, cluster, make_preset

from .pages import slow_down, state, until

point = st.tuples(st.floats(-1.5, 1.5), st.floats(-1, 1)).map(list)
bodies = st.fixed_dictionaries(
    {"points": st.lists(point, min_size=1, max_size=30)},
    optional={
        "routing": st.sampled_from(["em", "kmeans"]),
        "clusters": st.integers(1, 8),
        "iters": st.integers(1, 40),
        "start": st.sampled_from(["k-means++", "random", "uniform"]),
        "seed": st.integers(0, 1_000_000),
        "covariance": st.sampled_from(["diagonal", "full"]),
        "schedule": st.sampled_from(["paper", "released", "linear", "constant"]),
        "gain": st.floats(0.1, 500),
    },
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=bodies)
def test_valid_requests_give_finite_numbers(client: httpx.Client, body: dict[str, Any]) -> None:
    response = client.post("/api/clusters/cluster", json=body)
    assert response.status_code == 200
    result = response.json()
    count, parents, iters = len(body["points"]), body.get("clusters", 3), body.get("iters", 20)
    assert len(result["iterations"]) == iters
    assert len(base64.b64decode(result["responsibilities"])) == iters * count * parents
    for step in result["iterations"]:
        assert sum(step["mass"]) == pytest.approx(count, abs=1e-3)
        for name, shape in (("means", (parents, 2)), ("covariances", (parents, 3)), ("activations", (parents,))):
            values = torch.tensor(step[name])
            assert values.shape == shape
            assert torch.isfinite(values).all()
        xx, xy, yy = torch.tensor(step["covariances"], dtype=torch.float64).T
        assert torch.all(xx * yy - xy * xy >= -1e-6)


wrong = st.sampled_from(
    [
        {"points": []},
        {"points": [[0, 0]] * 401},
        {"points": [[1.6, 0]]},
        {"points": [[0, -1.1]]},
        {"points": [[0]]},
        {"points": [[0, 0, 0]]},
        {"points": "many"},
        {"clusters": 0},
        {"clusters": 9},
        {"iters": 41},
        {"iters": 2.5},
        {"start": "now"},
        {"seed": -1},
        {"covariance": "round"},
        {"schedule": "fast"},
        {"gain": 0},
        {"gain": 501},
        {"routing": "dynamic"},
        {"more": 1},
    ]
)


@settings(deadline=None)
@given(body=bodies, change=wrong)
def test_invalid_requests(client: httpx.Client, body: dict[str, Any], change: dict[str, Any]) -> None:
    response = client.post("/api/clusters/cluster", json=body | change)
    assert response.status_code == 422
    assert next(iter(change)) in response.json()["error"]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-1e999"])
def test_non_finite_numbers_are_refused(client: httpx.Client, literal: str) -> None:
    body = f'{{"points": [[0, {literal}]]}}'
    response = client.post("/api/clusters/cluster", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "points.0.1" in response.json()["error"]


@pytest.mark.parametrize("name", get_args(PresetName))
def test_preset_round_trip(client: httpx.Client, name: PresetName) -> None:
    known = client.post("/api/clusters/preset", json={"name": name}).json()
    response = client.post("/api/clusters/cluster", json=known)
    assert response.status_code == 200
    trace = cluster(make_preset(name, 0).round(decimals=4), "em", ClusterOptions(known["clusters"], 20))
    last = response.json()["iterations"][-1]
    torch.testing.assert_close(torch.tensor(last["activations"]), trace.activations[-1, 0].float(), atol=1e-4, rtol=0)
    shares = torch.frombuffer(bytearray(base64.b64decode(response.json()["responsibilities"])), dtype=torch.uint8)
    expected = trace.coupling[:, 0].float()
    torch.testing.assert_close(shares.view_as(expected) / 255, expected, atol=0.5 / 255 + 1e-6, rtol=0)


@pytest.mark.parametrize("schedule", ["paper", "linear"])
def test_temperature_schedule(schedule: Any) -> None:
    response = clusters.cluster_points(clusters.ClusterRequest(points=[(0, 0), (1, 0)], iters=4, schedule=schedule))
    assert tuple(step.inverse_temp for step in response.iterations) == inverse_temps(schedule, 4)


def test_covariance_kinds() -> None:
    points = [(x, y) for x, y in make_preset("stretched", 0).tolist()]
    upright = clusters.cluster_points(clusters.ClusterRequest(points=points, clusters=2))
    leaning = clusters.cluster_points(clusters.ClusterRequest(points=points, clusters=2, seed=1, covariance="full"))
    assert all(xy == 0 for step in upright.iterations for _, xy, _ in step.covariances)
    assert all(abs(xy) > 0.01 for _, xy, _ in leaning.iterations[-1].covariances)


def open_clusters(page: Any) -> Any:
    page.click("#tab-clusters")
    page.wait_for_selector(".field .disc")
    return page.locator(".field")


def activations(page: Any) -> list[float]:
    return [float(text) for text in page.locator(".panel-clusters .meter b").all_inner_texts()]


def choose(page: Any, label: str, value: str) -> None:
    page.locator(f".panel-clusters [aria-label='{label}']").select_option(value)


def test_add_move_and_remove_points(page: Any) -> None:
    field = open_clusters(page)
    page.get_by_role("button", name="Clear").click()
    assert page.locator(".field .dot").count() == 0
    assert page.locator(".field .disc").count() == 0
    box = field.bounding_box()
    for x, y in ((0.2, 0.2), (0.8, 0.3), (0.5, 0.8)):
        page.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])
    until(page, lambda: page.locator(".field .disc").count() == 3)
    assert page.get_by_text("3 points", exact=True).is_visible()
    kept = state(page)["clusters.points"]
    assert len(kept) == 12
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    moved = state(page)["clusters.points"]
    assert moved[:4] != kept[:4]
    assert moved[4:] == kept[4:]
    page.mouse.dblclick(box["x"] + 0.8 * box["width"], box["y"] + 0.3 * box["height"])
    until(page, lambda: page.locator(".field .dot").count() == 2)


def test_drag_out_of_the_plane(page: Any) -> None:
    field = open_clusters(page)
    page.get_by_role("button", name="Clear").click()
    box = field.bounding_box()
    x, y = box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.click(x, y)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] + 60, steps=5)
    page.mouse.up()
    assert page.locator(".field .dot").count() == 1
    assert float(page.locator(".field .dot").get_attribute("cy")) == pytest.approx(1, abs=1e-3)
    # The next click adds a point again.
    page.mouse.click(x, y)
    assert page.locator(".field .dot").count() == 2


def test_ellipses_follow_a_drag(page: Any) -> None:
    field = open_clusters(page)
    page.get_by_role("button", name="Clear").click()
    box = field.bounding_box()
    x, y = box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.click(x, y)
    page.mouse.click(x + 100, y)
    until(page, lambda: page.locator(".field .blob").count() > 0)
    slow_down(page, "clusters/cluster", 0.2)
    page.mouse.move(x, y)
    page.mouse.down()
    seen = set()
    for step in range(30):
        page.mouse.move(x - 3 * step, y)
        page.wait_for_timeout(50)
        seen.add(
            ";".join(
                page.locator(".field .blob").evaluate_all("all => all.map((one) => one.getAttribute('transform'))")
            )
        )
    page.mouse.up()
    assert len(seen) > 3


def test_outdated_response_is_not_shown(page: Any) -> None:
    field = open_clusters(page)
    slow_down(page, "clusters/cluster", 0.5)
    field.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Clear").click()
    page.wait_for_timeout(1200)
    assert page.locator(".field .blob").count() == 0


def test_touch_adds_and_removes_a_point(browser: Any, url: str) -> None:
    context = browser.new_context(base_url=url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto("/")
    field = open_clusters(page)
    page.get_by_role("button", name="Clear").tap()
    box = field.bounding_box()
    x, y = box["x"] + 100, box["y"] + 80
    page.touchscreen.tap(x, y)
    until(page, lambda: page.locator(".field .dot").count() == 1)
    # A tap shortly before would make three taps.
    page.wait_for_timeout(600)
    # The precision of a finger.
    for _ in range(2):
        page.touchscreen.tap(x + 6, y + 6)
    until(page, lambda: page.locator(".field .dot").count() == 0)
    context.close()


def test_empty_plane_has_no_stepper(page: Any) -> None:
    open_clusters(page)
    steps = page.locator(".panel-clusters .stepper")
    steps.locator("input").fill("4")
    page.get_by_role("button", name="Clear").click()
    assert not steps.is_visible()
    assert page.get_by_text("No points yet").is_visible()
    page.locator(".field").focus()
    page.keyboard.press("Enter")
    until(page, lambda: steps.locator("output").inner_text() == "iteration 5 / 20")
    page.locator(".panel-clusters [aria-label=Iterations][type=range]").fill("1")
    until(page, lambda: steps.locator("output").inner_text() == "iteration 1 / 1")
    assert steps.get_by_role("button", name="Play").is_disabled()


def test_keyboard_adds_and_removes_points(page: Any) -> None:
    field = open_clusters(page)
    before = page.locator(".field .dot").count()
    field.focus()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.locator(".field .dot").count() == before + 1
    last = page.locator(".field .dot").last
    assert float(last.get_attribute("cx")) == pytest.approx(0.2, abs=1e-3)
    assert float(last.get_attribute("cy")) == pytest.approx(-0.05, abs=1e-3)
    page.keyboard.press("Delete")
    assert page.locator(".field .dot").count() == before


def test_stepping(page: Any) -> None:
    open_clusters(page)
    slider = page.locator(".panel-clusters .stepper input")
    slider.fill("19")
    assert page.locator(".panel-clusters .stepper output").inner_text() == "iteration 20 / 20"
    final = page.locator(".field .blob").first.get_attribute("transform")
    colour = page.locator(".field .dot").evaluate_all(
        "dots => new Set(dots.map((dot) => dot.getAttribute('fill'))).size"
    )
    slider.fill("0")
    assert page.locator(".field .blob").first.get_attribute("transform") != final
    mixed = page.locator(".field .dot").evaluate_all(
        "dots => new Set(dots.map((dot) => dot.getAttribute('fill'))).size"
    )
    assert mixed > colour
    page.get_by_role("button", name="One iteration on").click()
    assert page.locator(".panel-clusters .stepper output").inner_text() == "iteration 2 / 20"


def test_unused_options_are_hidden(page: Any) -> None:
    open_clusters(page)
    row = page.locator("[data-choice=gain]")
    assert not row.is_visible()
    before = activations(page)
    choose(page, "Routing", "kmeans")
    assert row.is_visible()
    assert not page.locator("[data-choice=covariance]").is_visible()
    until(page, lambda: activations(page) != before)
    choose(page, "Start", "uniform")
    until(page, lambda: len(set(activations(page))) == 1)
    assert not page.locator("[data-choice=seed]").is_visible()


def test_link_restores_the_view(page: Any, browser: Any) -> None:
    open_clusters(page)
    choose(page, "Points to begin with", "ring")
    until(page, lambda: page.locator(".field .disc").count() == 6)
    choose(page, "Covariance", "full")
    page.locator(".panel-clusters .stepper input").fill("4")
    address = state(page)
    assert address["clusters.covariance"] == "full"
    assert address["clusters.iteration"] == 4
    shown = activations(page)
    other = browser.new_page()
    other.goto(page.url)
    other.wait_for_selector(".field .disc")
    assert other.locator(".panel-clusters .stepper output").inner_text() == "iteration 5 / 20"
    assert other.locator(".field .dot").count() == 72
    assert activations(other) == shown
    other.close()


def test_broken_link(page: Any) -> None:
    page.goto(
        "/#panel=%22clusters%22&clusters.points=%22abc%22&clusters.iteration=%22x%22&clusters.clusters=%22many%22"
    )
    page.reload()
    page.wait_for_selector(".field .disc")
    assert page.locator(".field .dot").count() == 94


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone_layout(page: Any, theme: str) -> None:
    page.set_viewport_size({"width": 340, "height": 700})
    page.goto(f"/#theme=%22{theme}%22")
    field = open_clusters(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 340
    before = page.locator(".field .dot").count()
    field.click(position={"x": 20, "y": 100})
    assert page.locator(".field .dot").count() == before + 1


def test_docs_screenshots(page: Any, picture: Any) -> None:
    open_clusters(page)
    assert len(activations(page)) == 3
    picture("clusters")
    choose(page, "Points to begin with", "stretched")
    choose(page, "Covariance", "full")
    page.locator("[data-choice=seed] input").fill("1")
    page.locator(".panel-clusters .stepper input").fill("19")
    until(page, lambda: len(activations(page)) == 2 and min(activations(page)) > 0.7)
    picture("clusters-stretched")
