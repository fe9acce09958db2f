"""Measure a playground on this machine under the load of many clients.

    python scripts/load_playground.py RUN                    # starts a playground
    python scripts/load_playground.py --url http://127.0.0.1:8017/ --clients 50 --seconds 60

Every client sends one request after the other, as a page does. A request is lost if its status is not 200. `alone_ms`
is the latency of each request with a single client in milliseconds, the median of several; `cpu_ms` is the processor
time of the server for it, which does not depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx

MOST_CLIENTS, MOST_SECONDS = 200, 600
# Number of times that each request is sent alone.
TIMES = 15
SAMPLE = {"source": {"sample": 3}}
POSE = {"label": 3, "pose": [0.1] * 16}
# The largest number of points.
POINTS = [[math.sin(number), math.cos(7 * number)] for number in range(400)]
# The requests of a page: files, a stroke of a drawing, sliders, steps.
REQUESTS: list[tuple[str, dict[str, Any] | None]] = [
    ("", None),
    ("app.js", None),
    ("api/info", None),
    ("api/draw/predict", SAMPLE),
    ("api/draw/predict", {"source": {"drawing": {"width": 2, "height": 2, "pixels": "/wD/AA=="}}}),
    ("api/draw/samples", {"count": 20}),
    ("api/pose/capsule", SAMPLE),
    ("api/pose/decode", POSE),
    ("api/pose/grid", POSE),
    ("api/pose/transform", SAMPLE),
    ("api/routing/trace", {**SAMPLE, "routers": ["own", "em"]}),
    ("api/toy/scene", {"name": "both"}),
    ("api/toy/route", {"parts": [{"kind": "triangle", "x": 0, "y": 0, "angle": 0, "size": 1}], "upside_down": True}),
    ("api/clusters/cluster", {"points": POINTS, "clusters": 8, "iters": 40, "covariance": "full"}),
]


@dataclass
class Load:
    """The requests of a measurement and their results."""

    clients: int
    seconds: float = 0.0
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Counts, and the latencies in milliseconds."""
        times = sorted(self.latencies) or [0.0]
        at = {f"p{share}": round(1000 * times[min(len(times) - 1, len(times) * share // 100)], 1) for share in (50, 95)}
        return {
            "clients": self.clients,
            "seconds": round(self.seconds, 1),
            "answered": self.answered,
            "lost": len(self.lost),
            "first_lost": self.lost[:3],
            "per_second": round(self.answered / max(self.seconds, 1e-9), 1),
            "latency_ms": {**at, "max": round(1000 * times[-1], 1)},
        }


async def load(url: str, clients: int, seconds: float) -> Load:
    """Send requests with a number of clients for a time; only to a playground on this machine."""
    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit(f"--url: expected an address on this machine, got {url}")
    if not (1 <= clients <= MOST_CLIENTS and 0 < seconds <= MOST_SECONDS):
        raise SystemExit(f"expected at most {MOST_CLIENTS} clients and {MOST_SECONDS} seconds")
    done = Load(clients)
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=clients)) as client:
        await asyncio.gather(*[_run_client(client, number, started + seconds, done) for number in range(clients)])
    done.seconds = time.monotonic() - started
    return done


async def _run_client(client: httpx.AsyncClient, number: int, until: float, done: Load) -> None:
    # Each client starts with another request, so that all kinds are in progress at once.
    requests = itertools.islice(itertools.cycle(REQUESTS), number % len(REQUESTS), None)
    sent = 0
    while not sent or time.monotonic() < until:
        path, body = next(requests)
        sent += 1
        before = time.monotonic()
        try:
            answer = await _send(client, path, body)
        except httpx.HTTPError as error:
            done.lost.append(f"{path}: {type(error).__name__}")
            continue
        done.latencies.append(time.monotonic() - before)
        if answer.status_code == 200:
            done.answered += 1
        else:
            done.lost.append(f"{path}: {answer.status_code} {answer.text[:80]}")


async def alone(url: str, pid: int | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """Latency of each request with a single client, and processor time of the server, in milliseconds.

    Both are medians of several; the second is empty where the system has no such numbers.
    """
    spent: dict[str, list[float]] = {}
    computed: dict[str, list[float]] = {}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        # The first round warms up.
        for number, (path, body) in itertools.product(range(TIMES + 1), REQUESTS):
            before, used = time.perf_counter(), cpu_ms(pid)
            answer = await _send(client, path, body)
            if answer.status_code != 200:
                raise SystemExit(f"{path}: {answer.status_code} {answer.text[:80]}")
            if not number:
                continue
            spent.setdefault(path or "/", []).append(1000 * (time.perf_counter() - before))
            now = cpu_ms(pid)
            if now is not None and used is not None:
                computed.setdefault(path or "/", []).append(now - used)
    return _medians(spent), _medians(computed)


def _medians(times: dict[str, list[float]]) -> dict[str, float]:
    return {path: round(median(several), 1) for path, several in times.items()}


async def _send(client: httpx.AsyncClient, path: str, body: dict[str, Any] | None) -> httpx.Response:
    return await (client.get(path) if body is None else client.post(path, json=body))


def memory_mb(pid: int) -> float | None:
    """Memory of a process; None where the system has no such number."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), None)


def cpu_ms(pid: int | None) -> float | None:
    """Processor time of all threads of a process; None where the system has no such number."""
    try:
        threads = [(task / "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return None
    return sum(int(words.split()[0]) for words in threads) / 1e6


def main() -> int:
    """Measure, and print one JSON document; 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="run of the playground to start")
    parser.add_argument("--url", help="address of a running playground")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    result = asyncio.run(load(args.url, args.clients, args.seconds)).summary() if args.url else _with_server(args)
    print(json.dumps(result, indent=2))
    return 1 if result["lost"] else 0


def _with_server(args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "torchcaps", "play", *([args.run] if args.run else [])]
    with subprocess.Popen([*command, "--no-browser", "--port", "0", "--json"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        text = b""
        while not text.rstrip().endswith(b"}"):
            line = server.stdout.readline()
            if not line:
                raise SystemExit("the playground did not start")
            text += line
        url = json.loads(text)["url"]
        try:
            # Once one_axis_sweep, so that memory is compared warm.
            asyncio.run(load(url, args.clients, min(5.0, args.seconds)))
            before = memory_mb(server.pid)
            half = asyncio.run(load(url, args.clients, args.seconds / 2))
            between = memory_mb(server.pid)
            whole = asyncio.run(load(url, args.clients, args.seconds / 2))
            after = memory_mb(server.pid)
            single, computed = asyncio.run(alone(url, server.pid))
        finally:
            server.terminate()
    whole.answered += half.answered
    whole.lost += half.lost
    whole.latencies += half.latencies
    whole.seconds += half.seconds
    memory = [None if value is None else round(value, 1) for value in (before, between, after)]
    return {**whole.summary(), "memory_mb": memory, "alone_ms": single, "cpu_ms": computed, "cores": os.cpu_count()}


if __name__ == "__main__":
    raise SystemExit(main())
