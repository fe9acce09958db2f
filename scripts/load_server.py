"""Measure `torchcaps serve` on this machine under the load of many clients.

    python scripts/load_server.py --pretrained mnist --seconds 300          # throughput, latency, memory
    python scripts/load_server.py --pretrained mnist --restart              # SIGTERM and a new server under load
    python scripts/load_server.py --model capsnet --seconds 30 --compare    # beside --max-batch 1, new weights
    python scripts/load_server.py ... --record soak                         # also store it in results/serving.json

Every client sends one image after the other on its own connection. A request is lost if it was sent and no response
with status 200 came; it is wrong if the prediction differs from that of the same image alone. A connection that the
server does not accept is refused, and the client tries again: nothing was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import torch
from load_playground import memory_mb
from PIL import Image

from torchcaps.data import load_data
from torchcaps.models import ModelDescription, save_weights
from torchcaps.train.environment import provenance

ROOT = Path(__file__).resolve().parent.parent
MOST_CLIENTS, MOST_SECONDS = 200, 900
# Different images, so that a prediction of another request is noticed.
IMAGES = 64
TOLERANCE = 1e-3
# Seconds for one response, also on a busy machine.
PATIENCE = 300


@dataclass
class Served:
    """The requests of a measurement and their results."""

    clients: int
    seconds: float = 0.0
    answered: int = 0
    wrong: int = 0
    refused: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Counts, latencies in milliseconds, and memory in megabytes."""
        times = sorted(self.latencies) or [0.0]
        at = {f"p{share}": times[min(len(times) - 1, len(times) * share // 100)] for share in (50, 95, 99)}
        return {
            "clients": self.clients,
            "seconds": round(self.seconds, 1),
            "answered": self.answered,
            "lost": sum(self.lost.values()),
            "first_lost": list(self.lost)[:3],
            "wrong": self.wrong,
            "refused_connections": self.refused,
            "per_second": round(self.answered / max(self.seconds, 1e-9), 1),
            "latency_ms": {name: round(1000 * value, 1) for name, value in {**at, "max": times[-1]}.items()},
            "memory_mb": [round(value, 1) for value in self.memory],
        }


class Server:
    """A `torchcaps serve` process on the loopback interface."""

    def __init__(self, words: list[str], port: int = 0) -> None:
        command = [sys.executable, "-m", "torchcaps", "serve", *words, "--port", str(port), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        text = b""
        while not text.rstrip().endswith(b"}"):
            line = self.process.stdout.readline()
            if not line:
                self.kill()
                raise SystemExit(f"the server did not start: {' '.join(command)}")
            text += line
        self.url: str = json.loads(text)["url"]
        self.port = int(self.url.rpartition(":")[2].rstrip("/"))

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.communicate()


def requests_for(url: str) -> list[tuple[bytes, dict[str, float]]]:
    """HTTP requests with one image each, and the activations that each must have: those of the image alone."""
    model = httpx.get(f"{url}model", timeout=PATIENCE).json()
    shape, found = tuple(model["image_shape"]), []
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (IMAGES, *shape), dtype=torch.uint8, generator=generator)
    if shape == (1, 28, 28):
        images = load_data("digits", "test").images[:IMAGES]
    for image in images:
        kind, body = _body(image, model["takes_files"])
        alone = httpx.post(f"{url}predict", content=body, headers={"content-type": kind}, timeout=PATIENCE)
        alone.raise_for_status()
        head = (
            f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        found.append((head.encode() + body, alone.json()["predictions"][0]["activations"]))
    return found


def _body(image: torch.Tensor, as_file: bool) -> tuple[str, bytes]:
    if not as_file:
        return "application/json", json.dumps({"images": [(image / 255).tolist()]}).encode()
    file = io.BytesIO()
    pixels = image[0] if len(image) == 1 else image.permute(1, 2, 0)
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    return "image/png", file.getvalue()


async def load(port: int, requests: list[tuple[bytes, dict[str, float]]], clients: int, seconds: float) -> Served:
    """Send requests with a number of clients for a time."""
    if not (1 <= clients <= MOST_CLIENTS and 0 < seconds <= MOST_SECONDS):
        raise SystemExit(f"expected at most {MOST_CLIENTS} clients and {MOST_SECONDS} seconds")
    done, started = Served(clients), time.monotonic()
    until = started + seconds
    await asyncio.gather(*[_run_client(port, requests, number, until, done) for number in range(clients)])
    done.seconds = time.monotonic() - started
    return done


async def _run_client(port: int, requests: list[Any], number: int, until: float, done: Served) -> None:
    connection = None
    while time.monotonic() < until:
        number += 1
        request, expected = requests[number % len(requests)]
        if connection is None:
            try:
                connection = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                done.refused += 1
                await asyncio.sleep(0.05)
                continue
        before = time.monotonic()
        try:
            status, body, closes = await asyncio.wait_for(_ask(*connection, request), PATIENCE)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            done.lost[type(error).__name__] += 1
            status, body, closes = 0, b"", True
        else:
            done.latencies.append(time.monotonic() - before)
        if status == 200:
            done.answered += 1
            done.wrong += not _is_expected(body, expected)
        elif status:
            done.lost[f"status {status}"] += 1
        if closes:
            connection[1].close()
            connection = None
    if connection is not None:
        connection[1].close()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes, bool]:
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(first.split()[1]), body, headers.get("connection") == "close"


def _is_expected(body: bytes, expected: dict[str, float]) -> bool:
    given = json.loads(body)["predictions"][0]["activations"]
    return all(abs(given[name] - value) < TOLERANCE for name, value in expected.items())


async def _watched(server: Server, requests: list[Any], clients: int, seconds: float) -> Served:
    """Load a server; its memory is recorded ten times, the first time after a tenth."""
    memory: list[float] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(seconds / 10.5)
            memory.append(memory_mb(server.process.pid) or 0.0)

    watcher = asyncio.create_task(watch())
    done = await load(server.port, requests, clients, seconds)
    watcher.cancel()
    done.memory = memory
    return done


def soak(words: list[str], clients: int, seconds: float) -> dict[str, Any]:
    """Load one server, and stop it."""
    server = Server(words)
    try:
        requests = requests_for(server.url)
        done = asyncio.run(_watched(server, requests, clients, seconds)).summary()
        sizes = _batches(httpx.get(f"{server.url}metrics", timeout=PATIENCE).text)
        return {"arguments": words, **done, "mean_batch": round(sizes, 2), "exit_code": server.stop()}
    finally:
        server.kill()


def _batches(text: str) -> float:
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return float(values["torchcaps_batch_size_sum"]) / float(values["torchcaps_batch_size_count"])


def compare(words: list[str], clients: int, seconds: float) -> dict[str, Any]:
    """Throughput with and without batches."""
    batched, single = soak(words, clients, seconds), soak([*words, "--max-batch", "1"], clients, seconds)
    return {"batched": batched, "unbatched": single, "speedup": round(batched["per_second"] / single["per_second"], 2)}


def restart(words: list[str], clients: int, seconds: float) -> dict[str, Any]:
    """Stop a server under load, and start another one on the same port; clients try again until they get through."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    first = Server(words, port)
    servers = [first]
    try:
        requests = requests_for(first.url)

        async def run() -> tuple[Served, int]:
            clients_done = asyncio.create_task(load(port, requests, clients, seconds))
            await asyncio.sleep(seconds / 4)
            code = await asyncio.to_thread(first.stop)
            servers.append(await asyncio.to_thread(Server, words, port))
            return await clients_done, code

        done, code = asyncio.run(run())
        return {"arguments": words, **done.summary(), "exit_codes": [code, servers[-1].stop()]}
    finally:
        for server in servers:
            server.kill()


def record(name: str, result: dict[str, Any], file: Path = ROOT / "results" / "serving.json") -> None:
    """Store a result beside the others."""
    table = json.loads(file.read_text()) if file.exists() else {}
    about = {"date": datetime.now(UTC).date().isoformat(), **provenance()}
    file.write_text(json.dumps({**table, name: {**about, **result}}, indent=1) + "\n")


def new_weights(name: str, folder: Path) -> Path:
    """Write a model with new weights to a file, and return it."""
    torch.manual_seed(0)
    described = ModelDescription(name, {}, (1, 28, 28), tuple("0123456789"))
    file = folder / f"{name}.safetensors"
    save_weights(described.create(), file, description=described._asdict())
    return file


def main() -> int:
    """Measure, and print one JSON document; 1 if a request was lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--compare", action="store_true", help="also measure with --max-batch 1")
    kinds.add_argument("--restart", action="store_true", help="stop the server under load, and start another one")
    parser.add_argument("--record", metavar="NAME", help="store the result under this name in results/serving.json")
    parser.add_argument("--model", metavar="NAME", help="a model with new weights, instead of a run of the server")
    # All other arguments are those of `torchcaps serve`.
    args, words = parser.parse_known_args()
    measure = compare if args.compare else restart if args.restart else soak
    with tempfile.TemporaryDirectory() as folder:
        words = words if args.model is None else [str(new_weights(args.model, Path(folder))), *words]
        result = measure(words, args.clients, args.seconds)
    print(json.dumps(result, indent=1))
    if args.record:
        record(args.record, result)
    parts = [result["batched"], result["unbatched"]] if args.compare else [result]
    return 1 if any(part["lost"] or part["wrong"] for part in parts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
