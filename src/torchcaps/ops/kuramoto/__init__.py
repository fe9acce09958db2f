"""Routing by synchronisation: children and parents as Kuramoto oscillators on a sphere."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Routing, register_routing
from torchcaps.ops.kuramoto import cpu
from torchcaps.ops.kuramoto.reference import kuramoto_routing, kuramoto_steps

register_routing(
    Routing(
        name="kuramoto",
        steps=kuramoto_steps,
        kernels=(_native.cpu_kernel(cpu.dense, cpu.conv, cpu.unsupported),),
        takes_bias=True,
    )
)

__all__ = ["kuramoto_routing", "kuramoto_steps"]
