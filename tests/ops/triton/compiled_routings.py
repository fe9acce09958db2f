"""Run by test_triton.py in a process of its own: compile what training steps launch, and print what it takes.

Arguments: compute capabilities (80, 90, 100) separated by commas, then cases such as `em:conv_caps:bfloat16`. Nothing
is launched, so no GPU is needed.
"""

from __future__ import annotations

import json
import sys

import torch

from torchcaps.bench.roofline import make_step
from torchcaps.ops._triton.compiled import compile_call, distinct, record


def main(capabilities: list[int], cases: list[str]) -> None:
    for case in cases:
        routing, layer, dtype = case.split(":")
        calls = distinct(record(make_step(routing, layer, 32, dtype=getattr(torch, dtype))))
        for capability in capabilities:
            for call in calls:
                print(json.dumps({"case": case, **compile_call(call, capability)._asdict()}), flush=True)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1].split(",")], sys.argv[2:])
