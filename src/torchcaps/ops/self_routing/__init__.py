"""Self-routing (Hahn, Pyeon, Kim 2019)."""

from torchcaps.ops import _native
from torchcaps.ops._routing import Kernel, Routing, register_routing
from torchcaps.ops._triton.device import triton_kernel
from torchcaps.ops.self_routing import cpu, recompute, triton
from torchcaps.ops.self_routing.reference import self_routing, self_routing_steps

register_routing(
    Routing(
        name="self_routing",
        steps=self_routing_steps,
        kernels=(
            triton_kernel(triton.route, unsupported=triton.unsupported),
            _native.cpu_kernel(cpu.dense, cpu.conv),
            Kernel("recompute", dense=recompute.dense),
        ),
        reads_activations=True,
        reads_poses=True,
    )
)

__all__ = ["self_routing", "self_routing_steps"]
