"""Random routing: the control with a fixed coupling drawn from a seed."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops.random import cpu, recompute
from torchcaps.ops.random.reference import random_logits, random_routing, random_steps

register_routing(
    Routing(
        name="random",
        steps=random_steps,
        kernels=(
            _native.cpu_kernel(cpu.dense, cpu.conv, cpu.unsupported),
            Kernel("recompute", dense=recompute.dense, composite=True),
        ),
        takes_bias=True,
    )
)

__all__ = ["random_logits", "random_routing", "random_steps"]
