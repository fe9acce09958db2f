"""Ask a playground on this machine as many people at once would, and say what became of their requests.

    python scripts/load_playground.py RUN                    # starts a playground of its own
    python scripts/load_playground.py --url http://127.0.0.1:8017/ --clients 50 --seconds 60

Every client asks one thing after the other, as a page does. Lost is whatever was not answered with 200. `alone_ms`
is what each kind of question takes when a single client asks, in milliseconds, the median of several; `cpu_ms` is how
long the playground computes for it, which does not depend on what else the machine does.
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
# How often each kind of question is asked alone.
TIMES = 15
SAMPLE = {"source": {"sample": 3}}
POSE = {"label": 3, "pose": [0.1] * 16}
# As many as may be asked about.
POINTS = [[math.sin(number), math.cos(7 * number)] for number in range(400)]
# What a page asks: files, a stroke of a drawing, sliders, steps.
ASKED: list[tuple[str, dict[str, Any] | None]] = [
    ("", None),
    ("app.js", None),
    ("api/info", None),
    ("api/draw/look", SAMPLE),
    ("api/draw/look", {"source": {"drawing": {"width": 2, "height": 2, "pixels": "/wD/AA=="}}}),
    ("api/draw/samples", {"count": 20}),
    ("api/pose/look", SAMPLE),
    ("api/pose/decode", POSE),
    ("api/pose/grid", POSE),
    ("api/pose/move", SAMPLE),
    ("api/routing/trace", {**SAMPLE, "routers": ["own", "em"]}),
    ("api/toy/scene", {"name": "both"}),
    ("api/toy/route", {"parts": [{"kind": "triangle", "x": 0, "y": 0, "angle": 0, "size": 1}], "upside_down": True}),
    ("api/clusters/cluster", {"points": POINTS, "clusters": 8, "iters": 40, "covariance": "full"}),
]


@dataclass
class Load:
    """What was asked and what came back."""

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
    """Let so many clients ask for so long; only a playground on this very machine."""
    if urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1"):
        raise SystemExit(f"--url: expected an address on this machine, got {url}")
    if not (1 <= clients <= MOST_CLIENTS and 0 < seconds <= MOST_SECONDS):
        raise SystemExit(f"expected at most {MOST_CLIENTS} clients and {MOST_SECONDS} seconds")
    done = Load(clients)
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=httpx.Limits(max_connections=clients)) as client:
        await asyncio.gather(*[_ask(client, number, started + seconds, done) for number in range(clients)])
    done.seconds = time.monotonic() - started
    return done


async def _ask(client: httpx.AsyncClient, number: int, until: float, done: Load) -> None:
    # Each begins at another place, so that all kinds are under way at once.
    questions = itertools.islice(itertools.cycle(ASKED), number % len(ASKED), None)
    asked = 0
    while not asked or time.monotonic() < until:
        path, body = next(questions)
        asked += 1
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
    """How long each kind of question takes a single client, and the process that answers, in milliseconds.

    Medians of several; nothing of the process where the system does not say.
    """
    spent: dict[str, list[float]] = {}
    computed: dict[str, list[float]] = {}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        # One round more, to begin warm.
        for number, (path, body) in itertools.product(range(TIMES + 1), ASKED):
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
    """What a process holds in memory; None where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), None)


def cpu_ms(pid: int | None) -> float | None:
    """How long all threads of a process have computed so far; None where the system does not say."""
    try:
        threads = [(task / "schedstat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return None
    return sum(int(words.split()[0]) for words in threads) / 1e6


def main() -> int:
    """Read the words, load, print one JSON document; 1 where a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="the run that a playground is started with")
    parser.add_argument("--url", help="a playground that is running already")
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
            # Once around, so that memory is compared warm.
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
