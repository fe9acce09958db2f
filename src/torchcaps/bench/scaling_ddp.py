"""Training in two processes beside one: images per second with DistributedDataParallel on the CPU."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from torchcaps._files import write_text
from torchcaps.bench.measure import in_own_process

# Networks, images of a step over all processes, and steps that are timed.
NETWORKS = {"capsnet_small": (128, 12), "capsnet": (64, 3)}
# Processes and threads of each.
SETTINGS = ((1, 1), (1, 2), (2, 1))


def measure_processes(*, quick: bool = False) -> list[dict[str, Any]]:
    """Measure training steps in one process with one thread and with two, and in two processes with one thread each.

    Args:
        quick: Whether to measure the smaller network only.

    Returns:
        One row per network and setting: processes, threads, images and images per second, or the reason of a failure.
    """
    rows = []
    for name, (images, steps) in NETWORKS.items():
        if quick and name != "capsnet_small":
            continue
        for processes, threads in SETTINGS:
            row = {"network": name, "processes": processes, "threads": threads, "images": images}
            words = [str(value) for value in (name, images, steps, processes, threads)]
            found = in_own_process("torchcaps.bench.scaling_ddp", *words)
            rows.append({**row, **({"error": found} if isinstance(found, str) else found)})
    return rows


def images_per_second(name: str, images: int, steps: int, processes: int, threads: int) -> float:
    """Return the number of images that training steps take per second.

    Args:
        name: Name of the model.
        images: Number of images of a step over all processes.
        steps: Number of steps that are timed, after two that are not.
        processes: Number of processes.
        threads: Number of threads of each.

    Returns:
        Images per second.
    """
    if processes == 1:
        return _train(name, images, steps, threads)
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        args = (folder, name, images // processes, steps, processes, threads)
        workers = [context.Process(target=_join, args=(rank, *args), daemon=True) for rank in range(processes)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            raise RuntimeError(f"processes ended with exit codes {[worker.exitcode for worker in workers]}")
        # The slowest process ends a step.
        return processes * min(float((Path(folder) / str(rank)).read_text()) for rank in range(processes))


def _join(rank: int, folder: str, name: str, images: int, steps: int, processes: int, threads: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=processes)
    try:
        speed = _train(name, images, steps, threads, parallel=True)
        write_text(Path(folder) / str(rank), repr(speed))
    finally:
        dist.destroy_process_group()


def _train(name: str, images: int, steps: int, threads: int, *, parallel: bool = False) -> float:
    from torchcaps.models import create_model
    from torchcaps.nn import MarginLoss

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model: nn.Module = create_model(name, (1, 28, 28), 10, decoder="none")
    if parallel:
        model = DistributedDataParallel(model)
    optimiser, loss = torch.optim.Adam(model.parameters(), fused=True), MarginLoss()
    batch, labels = torch.rand(images, 1, 28, 28), torch.arange(images) % 10

    def step() -> Tensor:
        optimiser.zero_grad()
        found = loss(model(batch), labels)
        found.backward()
        optimiser.step()
        return found

    for _ in range(2):
        step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return images * steps / (time.perf_counter() - start)


if __name__ == "__main__":
    model_name, *numbers = sys.argv[1:]
    print(json.dumps({"images_per_second": images_per_second(model_name, *map(int, numbers))}))
