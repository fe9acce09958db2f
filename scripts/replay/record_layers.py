"""Record the calls of every CPU kernel, forward and backward: `python scripts/replay/record_layers.py FILE`.

`make tsan` replays them. A layer of every router is run, large enough for several threads, so that a new kernel needs
no entry here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from record_calls import Recorder

from torchcaps.errors import ConfigError
from torchcaps.nn import CapsConv2d, CapsLinear, list_routers, make_router
from torchcaps.ops import _native
from torchcaps.types import Capsules


def layers(name: str, dtype: torch.dtype) -> Iterator[tuple[torch.nn.Module, Capsules]]:
    """Make layers of a router with their inputs, large enough for several threads."""
    options: dict[str, Any] = {"routing": name, "backend": "cpu", "dtype": dtype}
    flat = Capsules(torch.randn(48, 96, 8, dtype=dtype), torch.rand(48, 96, dtype=dtype))
    grid = Capsules(torch.randn(20, 6, 5, 4, 16, dtype=dtype), torch.rand(20, 6, 5, 4, dtype=dtype))
    for in_caps in (96, None):
        yield CapsLinear(in_caps, 8, 8, 16, **options), flat
    for pose in ("matrix", "vector"):
        yield CapsConv2d(4, 8, 3, dims=(16, 16), pose=pose, **options), grid


def run_layers(dtype: torch.dtype) -> None:
    """Run all layers forward and backward."""
    for name in list_routers():
        if "cpu" not in make_router(name).contract.backends:
            continue
        for layer, (poses, activations) in layers(name, dtype):
            children = Capsules(poses.clone().requires_grad_(), activations.clone().requires_grad_())
            try:
                parents = layer(children)
            except ConfigError:
                # No such kernel for this layer.
                continue
            (parents.poses.square().sum() + parents.activations.sum()).backward()


def main() -> None:
    """Write the calls in both types to the file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    torch.manual_seed(0)
    with parser.parse_args().file.open("wb") as file:
        recorder = Recorder(file, max_bytes=2**30)
        with mock.patch.object(_native, "call", recorder):
            for dtype in (torch.float32, torch.float64):
                run_layers(dtype)
    print(f"{sum(recorder.seen.values())} calls")


if __name__ == "__main__":
    main()
