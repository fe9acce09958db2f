"""Uniform routing: the control that couples every child equally to all parents."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops.uniform import cpu, recompute
from torchcaps.ops.uniform.reference import uniform_routing, uniform_steps

register_routing(
    Routing(
        name="uniform",
        steps=uniform_steps,
        kernels=(_native.cpu_kernel(cpu.dense, cpu.conv), Kernel("recompute", dense=recompute.dense, composite=True)),
        takes_bias=True,
    )
)

__all__ = ["uniform_routing", "uniform_steps"]
