from __future__ import annotations

import re

import httpx

from torchcaps.serving.metrics import Histogram, ServerMetrics

from .conftest import noise, png

# Of the text format: comments, and samples with labels.
LINE = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [-+0-9.einf]+')


def test_histogram_counts_values_at_a_bound_below_it() -> None:
    histogram = Histogram([1.0, 2.5])
    for value in (0.5, 1.0, 1.5, 2.5, 3.0):
        histogram.add(value)
    assert histogram.lines("x") == [
        'x_bucket{le="1"} 2',
        'x_bucket{le="2.5"} 4',
        'x_bucket{le="+Inf"} 5',
        "x_sum 8.5",
        "x_count 5",
    ]


def test_every_line_is_in_the_format() -> None:
    metrics = ServerMetrics()
    metrics.requests["/predict", 200] += 3
    metrics.seconds.add(0.02)
    text = metrics.text({"waiting_images": 2})
    assert text.endswith("\n")
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    assert "torchcaps_waiting_images 2" in text.splitlines()


def test_server_counts_requests_images_and_batches(client: httpx.Client) -> None:
    def values() -> dict[str, float]:
        answer = client.get("metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    before = values()
    file = {"content": png(noise(1)[0]), "headers": {"content-type": "image/png"}}
    labels = [client.post("predict", **file).json()["predictions"][0]["rejected"] for _ in range(3)]
    client.post("predict", json={})
    client.get("secret/%7Bname%7D")
    after = values()
    grown = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert grown['torchcaps_requests_total{path="/predict",status="200"}'] == 3
    assert grown['torchcaps_requests_total{path="/predict",status="422"}'] == 1
    assert grown['torchcaps_requests_total{path="other",status="404"}'] == 1
    assert grown["torchcaps_images_total"] == grown["torchcaps_batch_size_sum"] == 3
    assert grown.get("torchcaps_rejected_images_total", 0) == sum(reason is not None for reason in labels)
    assert grown["torchcaps_request_seconds_count"] == 4
