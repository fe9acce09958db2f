"""Run by test_triton.py in a process of its own: compile every variant of the kernels, down to machine code.

The argument is a compute capability (80, 90). Nothing is launched, so no GPU is needed.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
import sys
from typing import Any


def compile_variant(kernel: Any, types: dict[str, str], constants: dict[str, Any], target: Any) -> None:
    from triton.compiler import ASTSource, compile

    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    built = compile(ASTSource(kernel, signature, constants), target=target, options={"num_warps": 8})
    assert len(built.asm["cubin"]) > 0
    print("compiled", kernel.__name__, types["poses"], constants)


def main(capability: int) -> None:
    import triton.language as tl
    from triton.backends.compiler import GPUTarget

    from torchcaps.ops.dynamic import _triton_kernels as kernels

    target = GPUTarget("cuda", capability, 32)
    for (given, summed, acc), leaky in itertools.product(
        [("*fp32", "*fp32", tl.float32), ("*bf16", "*fp32", tl.float32)], [False, True]
    ):
        types = dict.fromkeys(["poses", "weight", "grad_poses"], given)
        types |= dict.fromkeys(["query", "grad", "queries", "grads", "partial"], summed)
        shared = {"P": 8, "D": 16, "LEAKY": leaky, "TILE_J": 16, "TILE_D": 16, "ACC": acc}
        for pull in (False, True):
            compile_variant(kernels._pass, types, {**shared, "PULL": pull, "TILE_B": 8}, target)
        more = {"ITERS": 3, "THROUGH": True, "TILE_P": 8}
        compile_variant(kernels._spread, types, {**shared, **more}, target)


if __name__ == "__main__":
    main(int(sys.argv[1]))
