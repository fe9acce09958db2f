"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """Counts of values in buckets, and their sum.

    Args:
        bounds: Upper bounds of the buckets, ascending; a last bucket without bound is added.

    Example:
        >>> sizes = Histogram([1, 4])
        >>> for size in (1, 3, 9):
        ...     sizes.add(size)
        >>> print(*sizes.lines("size"), sep="\\n")
        size_bucket{le="1"} 1
        size_bucket{le="4"} 2
        size_bucket{le="+Inf"} 3
        size_sum 13
        size_count 3
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value.

        Args:
            value: The value.
        """
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str) -> list[str]:
        """Return the samples in the text format; the counts of the buckets are cumulative.

        Args:
            name: Name of the metric.

        Returns:
            The lines.
        """
        lines, below = [], 0
        for bound, count in zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_sum {self.total:.9g}", f"{name}_count {below}"]


class ServerMetrics:
    """What a prediction server counts.

    Example:
        >>> metrics = ServerMetrics()
        >>> metrics.requests["/predict", 200] += 2
        >>> 'torchcaps_requests_total{path="/predict",status="200"} 2' in metrics.text({"queued_images": 0})
        True
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.images = 0
        self.rejected = 0
        self.seconds = Histogram(SECONDS)
        self.batches = Histogram(SIZES)

    def text(self, gauges: dict[str, float]) -> str:
        """Return all metrics.

        Args:
            gauges: Present values by name.

        Returns:
            The text, version 0.0.4 of the format.
        """
        requests = [
            f'torchcaps_requests_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.requests.items())
        ]
        lines = [
            *_head("requests_total", "counter", "Responses by path and status."),
            *requests,
            *_head("images_total", "counter", "Images that were classified."),
            f"torchcaps_images_total {self.images}",
            *_head("rejected_images_total", "counter", "Images that are probably none of the classes."),
            f"torchcaps_rejected_images_total {self.rejected}",
            *_head("request_seconds", "histogram", "Time from the headers of a request to its response."),
            *self.seconds.lines("torchcaps_request_seconds"),
            *_head("batch_size", "histogram", "Images that went through the network together."),
            *self.batches.lines("torchcaps_batch_size"),
        ]
        for name, value in gauges.items():
            lines += [*_head(name, "gauge", "Present value."), f"torchcaps_{name} {value:g}"]
        return "\n".join([*lines, ""])


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP torchcaps_{name} {about}", f"# TYPE torchcaps_{name} {kind}"]


class MetricsMiddleware:
    """Count every response, also those that other middleware refuses.

    Args:
        app: The ASGI application.
        metrics: Where to count.
        paths: Paths that are counted by name; any client can send any other path, and these are one.

    Example:
        >>> app.add_middleware(MetricsMiddleware, metrics=metrics, paths=["/predict"])  # doctest: +SKIP
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, paths: Collection[str]) -> None:
        self.app = app
        self.metrics = metrics
        self.paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self.paths else "other"
        started = time.monotonic()

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.metrics.requests[path, message["status"]] += 1
                if path == "/predict":
                    self.metrics.seconds.add(time.monotonic() - started)
            await send(message)

        await self.app(scope, receive, reply)
