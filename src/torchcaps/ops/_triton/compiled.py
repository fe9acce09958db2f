"""Record what a routing launches, without a GPU, and compile it ahead of time: registers and memory of every kernel."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from torchcaps._files import write_bytes
from torchcaps.ops._triton import device
from torchcaps.ops._triton.device import Call

_TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
}


class Usage(NamedTuple):
    """What one program of a compiled kernel takes.

    Args:
        kernel: Name of the kernel.
        capability: Compute capability, such as 80.
        warps: Warps of 32 threads.
        registers: Registers per thread.
        spilled: Bytes of local memory per thread: registers that did not fit.
        shared: Bytes of shared memory.
    """

    kernel: str
    capability: int
    warps: int
    registers: int
    spilled: int
    shared: int


def record(routing: Callable[[], Any]) -> list[Call]:
    """Run a function whose Triton kernels are recorded instead of launched; its tensors may be on any device.

    Args:
        routing: The function. What the kernels would compute has undefined values.

    Returns:
        The launches, in order.
    """
    from torchcaps.ops._backends import forget_reasons

    device.recorded = []
    forget_reasons()
    try:
        routing()
        return device.recorded
    finally:
        device.recorded = None
        forget_reasons()


def distinct(calls: Sequence[Call]) -> list[Call]:
    """Return one call of each kernel that Triton would compile."""
    return list({(call.name, *_source(call)[:2], call.warps): call for call in calls}.values())


def compile_call(call: Call, capability: int) -> Usage:
    """Compile the kernel of a launch down to machine code.

    Args:
        call: The launch.
        capability: Compute capability, such as 80.

    Returns:
        What a program takes.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    signature, constants, attributes = (dict(part) for part in _source(call))
    source = ASTSource(call.kernel, signature, constants, attributes)
    built = compile(source, target=GPUTarget("cuda", capability, 32), options=call.options)
    registers, spilled = _resources(built.asm["cubin"])
    return Usage(call.name, capability, call.warps, registers, spilled, built.metadata.shared)


def _source(call: Call) -> tuple[tuple[Any, ...], ...]:
    """Return types, constants and known divisors of the arguments, as Triton finds them in a launch."""
    signature, constants, attributes = [], [], []
    for index, (name, value) in enumerate(zip(call.kernel.arg_names, call.arguments, strict=True)):
        kind = "constexpr"
        if isinstance(value, torch.Tensor):
            # Memory that torch allocates starts at a multiple of 16 bytes.
            kind = f"*{_TYPES[value.dtype]}"
            attributes.append(((index,), (("tt.divisibility", 16),)))
        elif call.kernel.params[index].is_constexpr or value == 1:
            # A number of 1 becomes a constant, too.
            constants.append(((index,), value))
        else:
            kind = "i32"
            if value % 16 == 0:
                attributes.append(((index,), (("tt.divisibility", 16),)))
        signature.append((name, kind))
    return tuple(signature), tuple(constants), tuple(attributes)


def _resources(cubin: bytes) -> tuple[int, int]:
    """Return registers and bytes of local memory per thread, as the program that comes with Triton reads them."""
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        write_bytes(file, cubin)
        command = [str(program), "--dump-resource-usage", str(file)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return found["REG"], found["STACK"] + found["LOCAL"]
