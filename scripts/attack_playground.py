"""Attack a playground on this machine, and check that other clients lose no request that was accepted.

    python scripts/attack_playground.py --requests 5000 --json

It starts a playground. From one address, attackers send half of their headers, bodies byte by byte and thousands of
tiny chunks, and open idle connections, as fast as the server closes them. From another address, clients send ordinary
requests. Then SIGTERM comes with requests in flight. A request is answered (200), refused (429 or 503: not accepted),
or lost: every other status, a reset and a timeout. The exit code is 1 if one is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
from load_playground import SAMPLE, memory_mb

MOST_REQUESTS, MOST_SECONDS, IN_FLIGHT = 20_000, 1800, 60
ATTACKER, CLIENT = "127.0.0.2", "127.0.0.1"
HEAD = "POST /api/draw/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
# Cheap requests of a page, so that the server is busy with many.
REQUESTS: list[tuple[str, dict[str, Any] | None]] = [
    ("", None),
    ("app.js", None),
    ("api/info", None),
    ("api/toy/scene", {"name": "both"}),
    ("api/draw/predict", SAMPLE),
]


async def _drip(writer: asyncio.StreamWriter, first: str, piece: bytes, times: int, pause: float) -> None:
    writer.write(first.encode())
    for _ in range(times):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(pause)


async def _slow_headers(writer: asyncio.StreamWriter) -> None:
    await _drip(writer, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X-A: b\r\n", 1000, 1.0)


async def _slow_body(writer: asyncio.StreamWriter) -> None:
    await _drip(writer, f"{HEAD}Content-Length: 1000\r\n\r\n", b"x", 1000, 1.0)


async def _tiny_chunks(writer: asyncio.StreamWriter) -> None:
    await _drip(writer, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000, 400, 0.01)


async def _idle(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1000)


ATTACKS: dict[str, tuple[int, Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]]] = {
    "slow headers": (300, _slow_headers),
    "slow bodies": (260, _slow_body),
    "tiny chunks": (2, _tiny_chunks),
    "idle connections": (100, _idle),
}


async def _attack(port: int, name: str, made: Counter[str]) -> None:
    """Open a connection and misuse it until the server closes it, again and again."""
    while True:
        writer = None
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))
            made[name] += 1
            tasks = {asyncio.ensure_future(ATTACKS[name][1](writer)), asyncio.ensure_future(reader.read())}
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        if writer is not None:
            writer.close()
        await asyncio.sleep(0.2)


def _outcome(status: int) -> str:
    return "answered" if status == 200 else "refused" if status in (429, 503) else f"lost: status {status}"


async def _clients(url: str, requests: int, clients: int, seconds: float) -> Counter[str]:
    """Send requests, and count their outcomes."""
    outcomes: Counter[str] = Counter()
    left, end = requests, time.monotonic() + seconds
    transport = httpx.AsyncHTTPTransport(local_address=CLIENT, limits=httpx.Limits(max_connections=clients))
    async with httpx.AsyncClient(base_url=url, timeout=120, transport=transport) as client:

        async def run() -> None:
            nonlocal left
            while left > 0 and time.monotonic() < end:
                path, body = REQUESTS[left % len(REQUESTS)]
                left -= 1
                try:
                    answer = await (client.get(path) if body is None else client.post(path, json=body))
                    outcomes[_outcome(answer.status_code)] += 1
                except httpx.HTTPError as error:
                    outcomes[f"lost: {type(error).__name__}"] += 1

        await asyncio.gather(*[run() for _ in range(clients)])
    return outcomes


async def _shutdown(port: int, server: subprocess.Popen[bytes]) -> Counter[str]:
    """Send SIGTERM with requests in flight; every one of them is answered."""
    request = f"GET /api/info HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    outcomes: Counter[str] = Counter()

    async def ask() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(CLIENT, 0))
        writer.write(request)
        await writer.drain()
        return reader, writer

    opened = await asyncio.gather(*[ask() for _ in range(IN_FLIGHT)])
    server.send_signal(signal.SIGTERM)
    for reader, writer in opened:
        try:
            first = await asyncio.wait_for(reader.readline(), 120)
            outcomes[_outcome(int([*first.split(), b"0", b"0"][1]))] += 1
            await reader.read()
        except (OSError, TimeoutError) as error:
            outcomes[f"lost: {type(error).__name__}"] += 1
        writer.close()
    return outcomes


async def attack(url: str, server: subprocess.Popen[bytes], requests: int, clients: int, seconds: float) -> Any:
    """Attack, send ordinary requests meanwhile, and stop the server at the end."""
    port = urlsplit(url).port or 80
    made: Counter[str] = Counter()
    before, started = memory_mb(server.pid), time.monotonic()
    attackers = [
        asyncio.ensure_future(_attack(port, name, made)) for name, (count, _) in ATTACKS.items() for _ in range(count)
    ]
    outcomes = await _clients(url, requests, clients, seconds)
    spent, after = time.monotonic() - started, memory_mb(server.pid)
    for task in attackers:
        task.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    stopped = await _shutdown(port, server)
    memory = [None if value is None else round(value, 1) for value in (before, after)]
    return {
        "requests": sum(outcomes.values()),
        "clients": clients,
        "seconds": round(spent, 1),
        "outcomes": dict(outcomes),
        "connections_of_attackers": dict(made),
        "memory_mb": memory,
        "at_sigterm": dict(stopped),
    }


def main() -> int:
    """Start a playground, attack it, and print the outcomes; 1 if an accepted request was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=5000, help="ordinary requests (default: 5000)")
    parser.add_argument("--clients", type=int, default=20, help="clients that send them (default: 20)")
    parser.add_argument("--seconds", type=float, default=900, help="time limit (default: 900)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    if not (0 < args.requests <= MOST_REQUESTS and 0 < args.clients <= 100 and 0 < args.seconds <= MOST_SECONDS):
        raise SystemExit(f"expected at most {MOST_REQUESTS} requests, 100 clients and {MOST_SECONDS} seconds")
    command = [sys.executable, "-m", "torchcaps", "play", "--no-browser", "--port", "0", "--json"]
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as server:
            assert server.stdout is not None
            text = b""
            while not text.rstrip().endswith(b"}"):
                line = server.stdout.readline()
                if not line:
                    raise SystemExit("the playground did not start")
                text += line
            try:
                url = json.loads(text)["url"]
                done = asyncio.run(attack(url, server, args.requests, args.clients, args.seconds))
                done["exit_code"] = server.wait(120)
            finally:
                server.kill()
        done["log_bytes"] = log.seek(0, 2)
    print(json.dumps(done, indent=1) if args.json else "\n".join(f"{name:28}{value}" for name, value in done.items()))
    return 1 if any(name.startswith("lost") for name in (*done["outcomes"], *done["at_sigterm"])) else 0


if __name__ == "__main__":
    raise SystemExit(main())
