from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
import torch

from raising import raises_about
from torchcaps.data import InMemoryDataset
from torchcaps.errors import UnknownNameError
from torchcaps.models import create_model
from torchcaps.playground import PlaygroundNetwork
from torchcaps.playground.catalog import NetworkCatalog
from torchcaps.playground.images import ColourBitmap, SampleSource, UploadSource
from torchcaps.playground.measures import changed_by_routing, receptive_fields, reconstruction_quality
from torchcaps.playground.network import pretrained_network

from .conftest import start, unpack
from .pages import FILL, opened, until


def test_catalog_opens_a_network_once(network: PlaygroundNetwork) -> None:
    catalog = NetworkCatalog(network)
    assert catalog.open() is catalog.open(network.name) is network
    assert "multimnist" in catalog.names
    assert "mnist_cnn" not in catalog.names
    assert catalog.open("multimnist") is catalog.open("multimnist")
    with raises_about(UnknownNameError, "network", "multimnst"):
        catalog.open("multimnst")


def test_network_of_a_request(client: httpx.Client) -> None:
    first = client.get("/api/info").json()
    other = client.get("/api/info", params={"network": "multimnist"}).json()
    assert (first["labels"], other["labels"], other["image_shape"]) == (1, 2, [1, 36, 36])
    assert first["networks"] == other["networks"]
    unknown = client.get("/api/info", params={"network": "nothing"})
    assert unknown.status_code == 400
    assert "nothing" in unknown.json()["error"]
    assert client.get("/api/info", params={"network": "x" * 300}).status_code == 422


def upload(levels: torch.Tensor) -> dict[str, Any]:
    """An image [h, w, 3] as a source."""
    height, width, _ = levels.shape
    pixels = base64.b64encode(bytes(levels.flatten().tolist())).decode()
    return {"upload": {"width": width, "height": height, "pixels": pixels}}


def test_ink_on_paper_becomes_a_digit(ask: Any) -> None:
    paper = torch.full((60, 40, 3), 240, dtype=torch.uint8)
    paper[10:50, 18:24] = 20
    image = unpack(ask("draw/predict", source=upload(paper))["image"])[0, ..., 0]
    assert image.shape == (28, 28)
    rows = (image > 100).any(dim=1)
    assert int(rows.sum()) == 20
    assert int(image[0].max()) == 0


def test_colour_network_of_another_size() -> None:
    from torchcaps.playground.draw import DrawRequest, predict
    from torchcaps.playground.pose import PoseRequest, find_pose
    from torchcaps.playground.routing import TraceRequest, trace

    images = torch.randint(60, 255, (8, 3, 32, 40), dtype=torch.uint8)
    data = InMemoryDataset("own", "test", images, torch.arange(8) % 2, ("cat", "dog"), "here")
    model = create_model("capsnet_small", (3, 32, 40), 2).eval()
    own = PlaygroundNetwork("own", "", model, data)
    half = torch.zeros(20, 20, 3, dtype=torch.uint8)
    half[:, :10, 0] = 255
    source = UploadSource(upload=ColourBitmap(**upload(half)["upload"]))
    shown = unpack(predict(DrawRequest(source=source), own).image.model_dump())
    assert shown.shape == (1, 32, 40, 3)
    # Red on the left, black on the right, borders in the median colour of the edges.
    assert int(shown[0, 16, 14, 0]) > 200 > 50 > int(shown[0, 16, 26, 0])
    assert len(find_pose(PoseRequest(source=source), own).pose) == 16
    traced = trace(TraceRequest(source=source), own)
    assert traced.rows * traced.columns == len(traced.fields)


def test_calibrated_probabilities(network: PlaygroundNetwork) -> None:
    import copy
    from dataclasses import replace

    from torchcaps.playground.draw import DrawRequest, predict

    body = DrawRequest(source=SampleSource(sample=3))
    assert predict(body, network).probabilities is None
    model = copy.deepcopy(network.model)
    model.temperature = 0.5
    sharp = predict(body, replace(network, model=model)).probabilities
    assert sharp is not None
    assert sum(sharp) == pytest.approx(1)
    shares = torch.tensor(predict(body, network).activations).square()
    torch.testing.assert_close(torch.tensor(sharp), shares / shares.sum(), atol=1e-4, rtol=0)


def test_page_of_own_classes(browser: Any) -> None:
    """A network of colour images: no word of digits, the user's classes in the hint, and everything is shown."""
    images = torch.randint(60, 255, (40, 3, 32, 40), dtype=torch.uint8)
    data = InMemoryDataset("own", "test", images, torch.arange(40) % 2, ("cat", "dog"), "here")
    with torch.random.fork_rng():
        model = create_model("capsnet_small", (3, 32, 40), 2).eval()
    model.temperature = 0.7
    errors: list[str] = []
    for address in start(PlaygroundNetwork("pets", "capsnet_small on pets", model, data)):
        page = browser.new_page(base_url=address, viewport={"width": 1280, "height": 800})
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened(page, 'panel="draw"')
        page.wait_for_selector(".class.first")
        assert "cat" in page.locator("#hint").inner_text()
        assert not page.locator("#one").is_visible()
        assert "calibrated" in page.locator(".certainty").inner_text()
        assert page.locator(".summary canvas").first.evaluate("canvas => [canvas.width, canvas.height]") == [40, 32]
        for panel in ("draw", "pose", "routing"):
            opened(page, f'panel="{panel}"')
            assert "digit" not in page.locator("#panel").inner_text() + page.locator("#hint").inner_text()
            assert page.locator("#status").inner_text() == ""
        assert errors == []
        page.close()


def test_page_without_decoder(browser: Any) -> None:
    """Colour images of 64 pixels: nothing is offered that needs a decoder or digits, and small capsules are visible."""
    images = torch.randint(60, 255, (8, 3, 64, 64), dtype=torch.uint8)
    names = ("cat", "dog", "sail boat", "鍵")
    data = InMemoryDataset("own", "test", images, torch.arange(8) % 4, names, "here")
    with torch.random.fork_rng():
        model = create_model("capsnet_small", (3, 64, 64), 4, decoder=None).eval()
    for address in start(PlaygroundNetwork("pets", "capsnet_small on pets", model, data)):
        page = browser.new_page(base_url=address, viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        opened(page, 'panel="draw"')
        assert "“cat”, “dog”, “sail boat” or “鍵”" in page.locator("#hint").inner_text()
        assert "digit" not in page.locator("#tasks").inner_text()
        page.click("#tab-pose")
        page.wait_for_selector("#transform-rotate")
        assert "slider" not in page.locator("#hint").inner_text()
        assert page.locator(".pose-views:visible, .dims:visible, [data-task=dimension]").count() == 0
        page.click("#tab-routing")
        page.wait_for_selector("#card-a .map")
        assert page.locator(".dots circle").count() == 0
        opacity, colour = page.locator(".dots .cell").first.evaluate(FILL)
        assert opacity > 0
        assert colour == page.locator(".maps .map").first.locator("rect").first.evaluate(FILL)[1]
        page.close()


@pytest.mark.parametrize("change", [{"width": 0}, {"width": 225}, {"pixels": "AAAA"}, {"pixels": "?"}, {"more": 1}])
def test_invalid_upload(refuse: Any, change: dict[str, Any]) -> None:
    body = upload(torch.zeros(2, 2, 3, dtype=torch.uint8))
    assert refuse("draw/predict", source={"upload": body["upload"] | change})[0] == 422


def test_untrained_decoder_is_poor(network: PlaygroundNetwork) -> None:
    fresh = reconstruction_quality(network)
    assert fresh is not None
    assert fresh.poor
    trained = reconstruction_quality(pretrained_network("mnist_dynamic"))
    assert trained is not None
    assert not trained.poor
    assert trained.error < 0.5 * trained.mean_error


def test_receptive_fields(network: PlaygroundNetwork) -> None:
    fields = receptive_fields(network)
    grid = network.model.grid()
    assert grid is not None
    centres = [(row, column) for row in grid.rows for column in grid.columns]
    for (top, left, bottom, right), (row, column) in zip(fields, centres, strict=True):
        assert ((top + bottom) / 2, (left + right) / 2) == pytest.approx((row, column), abs=0.03)


def test_effect_of_routing(client: httpx.Client) -> None:
    little = client.post("/api/routing/effect", params={"network": "mnist_dynamic"}, json={}).json()
    assert little["share"] < 0.05
    assert little["example"]["share"] > 0.3
    chosen = client.post("/api/routing/effect", params={"network": little["example"]["network"]}, json={}).json()
    assert little["example"]["sample"] in chosen["samples"]
    body = {"source": {"sample": little["example"]["sample"]}, "routers": ["own", "own_uniform"]}
    name = {"network": little["example"]["network"]}
    own, even = client.post("/api/routing/trace", params=name, json=body).json()["traces"]
    best = [max(range(10), key=trace["activations"][-1].__getitem__) for trace in (own, even)]
    assert best[0] != best[1]


def test_changed_is_that_of_the_diagnostics() -> None:
    from torchcaps.diagnostics import diagnose_layers

    efficient = pretrained_network("mnist_efficient")
    changed = changed_by_routing(efficient)
    (layer,) = diagnose_layers(efficient.model, [efficient.padded(efficient.samples.images[: len(changed)])])
    assert float(changed.float().mean()) == pytest.approx(layer.changed, abs=0.02)


def test_switch_the_network_on_the_page(page: Any) -> None:
    opened(page, 'panel="draw"&input=3')
    page.select_option("#network", "mnist_efficient")
    page.wait_for_function("() => document.querySelector('#verdict').textContent === '3'")
    assert page.locator(".class.first b").inner_text() == "3"
    page.select_option("#network", "fresh")
    until(page, lambda: "network" not in page.url)
    page.click("#help")
    assert "capsnet_small with fresh weights" in page.locator("#about").inner_text()


def is_for(response: Any, source: dict[str, int]) -> bool:
    """Whether this is the prediction of an image, by the network of two digits."""
    return "draw/predict?network=multimnist" in response.url and response.request.post_data_json["source"] == source


def test_pairs_on_the_page(page: Any, picture: Any) -> None:
    """Pairs of test digits, laid over each other as in MultiMNIST: at least four of five are read right."""
    opened(page, 'panel="draw"&input=3')
    page.click("#two")
    page.wait_for_function("() => document.querySelector('#network').value === 'multimnist'")
    pairs = [(first, 10 * (step % 10) + (first + step) % 10) for step in range(1, 10) for first in range(0, 10, 2)]
    right = 0
    for first, second in pairs:
        link = f"panel=%22draw%22&network=%22multimnist%22&input=[{first},{second}]"
        source = {"sample": first, "second": second}
        # The response to an earlier pair may still be on its way.
        with page.expect_response(lambda response, source=source: is_for(response, source)) as response:
            page.evaluate("link => { location.hash = link; }", link)
        activations = response.value.json()["activations"]
        found = sorted(map(str, sorted(range(10), key=activations.__getitem__)[-2:]))
        until(page, lambda found=found: sorted(page.locator("#verdict").inner_text().split(" + ")) == found)
        right += found == sorted([str(first % 10), str(second % 10)])
    assert len(pairs) == 45
    assert right >= 0.8 * len(pairs), right
    opened(page, 'panel="draw"&network="multimnist"&input=[3,16]')
    page.wait_for_selector("[data-task=pair].done")
    picture("draw-two")


def test_choose_and_draw_two_digits(page: Any) -> None:
    opened(page, 'panel="draw"&network="multimnist"')
    page.click('[data-sample="4"]')
    page.click('[data-sample="8"]')
    until(page, lambda: sorted(page.locator("#verdict").inner_text().split(" + ")) == ["4", "8"])
    assert page.locator('.strip [aria-pressed="true"]').count() == 2
    names = [page.locator(f".summary .{colour}").inner_text() for colour in ("red", "green")]
    assert sorted(names) == ["4", "8"]
    page.click("#one")
    page.wait_for_function("() => document.querySelector('#network').value === 'fresh'")


def test_paste_and_drop_an_image(page: Any) -> None:
    opened(page, 'panel="draw"&input=3')
    give = """async (kind) => {
      const canvas = new OffscreenCanvas(40, 60);
      const pen = canvas.getContext("2d");
      pen.fillStyle = "white";
      pen.fillRect(0, 0, 40, 60);
      pen.fillStyle = "black";
      pen.fillRect(17, 8, 6, 44);
      const data = new DataTransfer();
      data.items.add(new File([await canvas.convertToBlob()], "one.png", { type: "image/png" }));
      const event = kind === "paste"
        ? new ClipboardEvent("paste", { clipboardData: data })
        : new DragEvent("drop", { dataTransfer: data, cancelable: true });
      dispatchEvent(event);
    }"""
    for kind in ("paste", "drop"):
        opened(page, 'panel="draw"&input=3')
        before = page.locator(".summary canvas").first.evaluate("canvas => canvas.toDataURL()")
        page.evaluate(give, kind)
        page.wait_for_function(
            "(before) => document.querySelector('.summary canvas').toDataURL() !== before", arg=before
        )
        assert page.get_by_role("button", name="Your image").get_attribute("aria-pressed") == "true"
    page.click("#tab-pose")
    page.wait_for_function("() => document.querySelector('.pictures canvas').width === 28")


def test_poor_reconstructions_are_named(page: Any) -> None:
    opened(page, 'panel="draw"')
    assert "mean image" in page.locator("#reconstruction-note").inner_text()
    opened(page, 'panel="draw"&network="mnist"')
    page.wait_for_selector(".class.first")
    assert page.locator("#reconstruction-note").count() == 0


def test_routing_that_changes_little_is_named(page: Any, picture: Any) -> None:
    opened(page, 'panel="routing"&network="mnist_dynamic"&input=3')
    page.wait_for_selector("#show-example")
    assert "changes little" in page.locator("#effect").inner_text()
    page.click("#show-example")
    page.wait_for_selector("[data-task=matters].done")
    assert "This image is one of them." in page.locator("#effect").inner_text()
    predictions = [page.locator(f"#card-{side} .prediction").inner_text() for side in "ab"]
    assert predictions[0].split(",")[0] != predictions[1].split(",")[0]
    picture("routing-matters")
